"""Graphs that ONNX Runtime's graph mode takes whole, and graphs of which it refuses a node in the middle."""

WHOLE = """
graph @whole(%x: f32[B, 8], %w: f32[8, 8], %scale: f32[8], %bias: f32[8]) {
  %m: f32[B, 8] = matmul(%x, %w)
  %s: f32[B, 8] = add(%m, %bias)
  %g: f32[B, 8] = gelu(%s)
  %r: f32[B, 8] = add(%g, %x)
  %y: f32[B, 8] = layer_norm(%r, %scale, %bias)
  return %y
}
"""
LOOPED = """
graph @looped(%x: f32[B, 8], %n: i64[]) {
  %a: f32[B, 8] = tanh(%x)
  %b: f32[B, 8] = mul(%a, %a)
  %l: f32[B, 8] = loop(%n, _, %b) {body = @step, carried = 1}
  %d: f32[B, 8] = sub(%l, %x)
  %y: f32[B, 8] = sigmoid(%d)
  return %y
}
graph @step(%i: i64[], %c: bool[], %v: f32[B, 8]) {
  %t: f32[B, 8] = add(%v, %v)
  return %c, %t
}
"""
SPARSE = """
graph @sparse(%x: f32[B, 8]) {
  %a: f32[B, 8] = relu(%x)
  %b: f32[B, 8] = sub(%a, %x)
  %i: i64[2, N] = non_zero(%a)
  %s: i64[2] = reduce_sum(%i) {axes = [1], keep_dims = false}
  %f: f32[2] = cast(%s) {to = f32}
  %t: f32[] = reduce_sum(%f) {axes = [0], keep_dims = false}
  %c: f32[B, 8] = exp(%b)
  %y: f32[B, 8] = add(%c, %t)
  return %y
}
"""
UNKNOWN = """
graph @unknown(%x: f32[B, 8]) {
  %a: f32[B, 8] = tanh(%x)
  %b: f32[B, 8] = mul(%a, %a)
  %t: f32[B, 8] = com.example.Twist(%b) {opset_version = 1}
  %d: f32[B, 8] = sub(%t, %x)
  %y: f32[B, 8] = sigmoid(%d)
  return %y
}
"""
LACKING = """
graph @lacking(%x: f32[B, 8]) {
  %a: f32[B, 8] = relu(%x)
  %b: f32[B, 8] = tan(%a)
  %y: f32[B, 8] = sigmoid(%b)
  return %y
}
"""
ATTENTION = """
graph @attention(%q: f32[B, 2, 4, 8], %k: f32[B, 2, 4, 8], %v: f32[B, 2, 4, 8]) {
  %r: f32[B, 2, 4, 8] = relu(%q)
  %s: f32[B, 2, 4, 8] = attention(%r, %k, %v, _, _) {scale = 0.5}
  %y: f32[B, 2, 4, 8] = relu(%s)
  return %y
}
"""
