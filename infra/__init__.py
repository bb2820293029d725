"""What starts and describes services; imports nothing of ours."""
