"""Many lines: what every engine must answer, and what a store must survive."""
