"""Software pipelining: loads are issued iterations before their use."""
