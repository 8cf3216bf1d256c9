"""Small training-like programs that each do one thing to a GPU."""
