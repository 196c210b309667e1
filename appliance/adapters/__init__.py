"""One outside thing each; foreign errors are translated at the edge."""
