"""Detect COCO's 80 kinds of things in `splatview camera`: torchvision's SSD.

    pip install torchvision
    splatview camera 0 --detect examples.camera_detector:Detector

in the folder above this one.

A detector is a function that takes a picture, (H, W, 3) RGB in uint8, and returns what
`splatview.annotate` takes; or a class like this one, of which one object is made. A
TensorRT engine, an older YOLO or a model behind a socket goes the same way. Run as a
program, it looks at noise with random weights: nothing is downloaded.
"""

import argparse

import numpy as np
import torch
from torchvision.models.detection import (  # pyright: ignore[reportMissingImports]
    SSDLite320_MobileNet_V3_Large_Weights,
    ssdlite320_mobilenet_v3_large,
)

import splatview

TRAINED = SSDLite320_MobileNet_V3_Large_Weights.COCO_V1
THRESHOLD = 0.4


class Detector:
    """A network, on the GPU where there is one."""

    def __init__(self, weights=TRAINED, threshold=THRESHOLD):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        model = ssdlite320_mobilenet_v3_large(weights=weights, weights_backbone=None)
        self.model = model.eval().to(self.device)
        self.threshold = threshold

    @torch.inference_mode()
    def __call__(self, image):
        picture = torch.from_numpy(image).to(self.device).permute(2, 0, 1) / 255
        # Boxes in pixels of the picture, whatever its size.
        detections = self.model([picture])[0]
        is_sure = detections["scores"] >= self.threshold
        class_ids = detections["labels"][is_sure].tolist()
        names = TRAINED.meta["categories"]
        labels = [names[class_id] for class_id in class_ids]
        return detections["boxes"][is_sure], labels, detections["scores"][is_sure]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="pictures to look at")
    detector = Detector(weights=None, threshold=0.0)
    random = np.random.default_rng(0)
    for _ in range(parser.parse_args().steps):
        image = random.integers(0, 256, (240, 320, 3), np.uint8)
        splatview.publish(image, "camera")
        boxes, labels, scores = detector(image)
        splatview.annotate("camera", boxes=boxes, labels=labels, scores=scores)
