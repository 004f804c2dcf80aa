"""Laws that every operator must obey, and the samples they are tried on."""
