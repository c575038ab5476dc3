"""How a call is made: entries, their calls as values, and who serves them."""
