"""The legacy protocol: that of SyReNN, the paper's tool, for clients that were written for it."""
