"""Recording and replay: static inputs, buckets, dispatch, verification. What runs on a device stands elsewhere."""
