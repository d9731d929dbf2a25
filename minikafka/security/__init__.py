"""Who a client is, and what it may do: SASL, principals, ACLs. Pure: times and random bytes are arguments."""
