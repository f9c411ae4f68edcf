"""What people and machines can see of the running service, with secrets taken out."""
