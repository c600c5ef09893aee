"""What a recorded command loads. No module here imports one of ours."""
