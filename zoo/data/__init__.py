"""What data sets share: documents and how they are split, the token cache, and the order of samples."""
