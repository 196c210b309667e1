"""HTTP/1.1 heads and bodies, in and out, on top of httptools."""
