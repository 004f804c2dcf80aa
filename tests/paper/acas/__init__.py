"""Tests of the ACAS Xu study."""
