"""What flows, what it folds into, and the laws of both; pure, all of it."""
