"""The error model: how far a computed value can be from the exact one."""
