"""HTTP/1.1 heads and bodies, of requests and responses, parsed with httptools."""
