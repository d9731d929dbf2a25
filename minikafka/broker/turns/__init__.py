"""The division of work into steps, and the turns of the event loop in which a broker takes them."""
