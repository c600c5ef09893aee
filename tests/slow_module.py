"""A program that is not done before its time is over."""

from __future__ import annotations

import time


def main() -> None:
    time.sleep(60)
