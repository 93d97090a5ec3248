"""What others published: scores with their sources (reference.py), the paper's tables (printed.py), its logs (release.py)."""
