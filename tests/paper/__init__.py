"""The studies do what their pages say."""
