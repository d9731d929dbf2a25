"""The console of a cluster that is gone, from its ledgers."""
