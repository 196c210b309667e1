"""Rules of the watchdog, which judge a look of the box."""
