"""What people run: the command line, clusters on this machine, and explanations of what a cluster does."""
