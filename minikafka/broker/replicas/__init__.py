"""The replicas that a broker hosts: roles, fetchers, ISR changes, appends, checkpoints and the work on their files."""
