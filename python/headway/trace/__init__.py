"""Who holds a GIL, who waits for it and who asks for it, over time; measured or simulated."""
