"""Page of the box for a browser: views of the documents, which are pure, and templates that show them."""
