"""What a pass is: rewriter, pattern, driver, pipeline, numeric checking, bisection."""
