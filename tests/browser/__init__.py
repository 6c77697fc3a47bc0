"""Tests in a real Chromium. A package, so that its conftest is not taken for the other one."""
