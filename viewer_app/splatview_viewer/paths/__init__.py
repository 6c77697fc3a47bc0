"""Camera paths: key frames and what lies between them (`path`), as files (`nerfstudio`), and as films."""
