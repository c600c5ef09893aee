"""What the package's front door opens to: plan, apply, status, verify, revert."""
