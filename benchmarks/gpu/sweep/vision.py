"""Models of torchvision, and of timm, by the names that these packages give them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from .subject import Called, Subject, Tensors, images

_IMAGE = ((224, 192), (64, 96))

_CLASSIFIERS = {
    "resnet18": _IMAGE,
    "resnet50": _IMAGE,
    "resnext50_32x4d": _IMAGE,
    "wide_resnet50_2": _IMAGE,
    "mobilenet_v2": _IMAGE,
    "mobilenet_v3_large": _IMAGE,
    "efficientnet_b0": _IMAGE,
    "efficientnet_v2_s": ((384, 320), (64, 96)),
    "densenet121": _IMAGE,
    "vgg16_bn": _IMAGE,
    "alexnet": _IMAGE,
    "convnext_tiny": _IMAGE,
    "swin_t": _IMAGE,
    "swin_v2_t": ((256, 224), (64, 96)),
    "vit_b_16": ((224, 224), (224, 224)),  # its number of positions is fixed
    "maxvit_t": ((224, 224), (224, 224)),  # so are its windows
    "regnet_y_800mf": _IMAGE,
    "shufflenet_v2_x1_0": _IMAGE,
    "squeezenet1_1": _IMAGE,
    "googlenet": _IMAGE,
    "inception_v3": ((299, 331), (96, 128)),
    "mnasnet1_0": _IMAGE,
}
"""Of torchvision: the sizes of images, and those for tests."""

_SEGMENTERS = ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large")
_DETECTORS = ("retinanet_resnet50_fpn", "ssdlite320_mobilenet_v3_large", "ssd300_vgg16", "fcos_resnet50_fpn")

_FIXED = ((224, 224), (224, 224))
_TIMM = {
    "vit_small_patch16_224": _FIXED,
    "deit3_small_patch16_224": _FIXED,
    "eva02_tiny_patch14_224": _FIXED,
    "cait_xxs24_224": _FIXED,
    "mixer_b16_224": _FIXED,
    "resmlp_12_224": _FIXED,
    "gmlp_s16_224": _FIXED,
    "xcit_tiny_12_p16_224": _FIXED,
    "coatnet_0_rw_224": _FIXED,
    "levit_128": _FIXED,
    "mobilevit_s": ((256, 224), (64, 96)),
    "poolformer_s12": _IMAGE,
    "efficientformer_l1": _FIXED,
    "pvt_v2_b0": _IMAGE,
    "twins_svt_small": _FIXED,
    "nf_regnet_b1": _IMAGE,
    "repvgg_a2": _IMAGE,
    "hrnet_w18_small": _IMAGE,
    "dla34": _IMAGE,
    "res2net50_26w_4s": _IMAGE,
    "resnest14d": _IMAGE,
    "ghostnet_100": _IMAGE,
    "convmixer_768_32": _IMAGE,
    "edgenext_small": _IMAGE,
}
"""Of timm, likewise."""


class _Heads(nn.Module):
    """What a detector computes before the loop over its images: the results of its heads on normed images."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, x: torch.Tensor) -> Tensors:
        """The results of the heads, in the order of their names."""
        found = self.head(list(self.backbone(x).values()))
        return tuple(found[name] for name in sorted(found))


def _of_torchvision(name: str, **options: Any) -> Callable[[bool], nn.Module]:
    def make(_small: bool) -> nn.Module:
        import torchvision

        model: nn.Module = torchvision.models.get_model(name, weights=None, **options)
        return model

    return make


def _segmenter(name: str) -> Callable[[bool], nn.Module]:
    make = _of_torchvision(name, weights_backbone=None)
    return lambda small: Called(make(small), ("x",) if "lraspp" not in name else ("input",), "out")


def _detector(name: str) -> Callable[[bool], nn.Module]:
    make = _of_torchvision(name, weights_backbone=None)
    return lambda small: _Heads(make(small))


def _videos(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 3, 16 if size > 100 else 8, size, size),)


def _of_timm(name: str) -> Callable[[bool], nn.Module]:
    def make(_small: bool) -> nn.Module:
        import timm

        model: nn.Module = timm.create_model(name, pretrained=False)
        return model

    return make


def subjects() -> Iterator[Subject]:
    """All of them; detectors are named by what they detect with."""
    for name, (sizes, small) in _CLASSIFIERS.items():
        varies = name != "swin_v2_t"  # PyTorch's trace of its pads and windows did not end in 200 s
        yield Subject(f"tv-{name}", _of_torchvision(name), images, sizes, small, "torchvision", varies)
    for name in _SEGMENTERS:
        yield Subject(f"tv-{name}", _segmenter(name), images, (520, 416), (64, 96), "torchvision")
    for name in _DETECTORS:
        yield Subject(f"tv-{name}", _detector(name), images, (320, 320), (320, 320), "torchvision")
    yield Subject("tv-r3d_18", _of_torchvision("r3d_18"), _videos, (112, 128), (32, 48), "torchvision")
    for name, (sizes, small) in _TIMM.items():
        yield Subject(f"timm-{name}", _of_timm(name), images, sizes, small, "timm")
