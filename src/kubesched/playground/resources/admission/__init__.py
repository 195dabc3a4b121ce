"""What the server does to a new object beyond its defaults: look other objects up, derive fields, refuse."""
