"""Models that say themselves how their Gaussians are drawn, and that wrap or name them
in ways of their own.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from splatview.adapters import recognise
from splatview_ipc.kinds import check_frame

N = 6
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def layout_of(value: Any, activated: Any = None) -> Any:
    return recognise(value, activated=activated)


def published(
    value: Any, known_layout: Any = None, activated: Any = None, **drawing: Any
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the fields and metadata that a viewer gets, by the steps of `publish`.

    A layout that does not fit any more is made again.
    """
    layout: Any = known_layout
    match = None
    if known_layout is not None:
        match = layout.match(value, drawing)
    if match is None:
        layout = layout_of(value, activated)
        match = layout.match(value, drawing)
    tensors, full = match
    fields = layout.frame(tensors)
    described = {name: (str(t.dtype)[6:], tuple(t.shape)) for name, t in fields.items()}
    check_frame(layout.kind, described, full)
    return fields, full


class Model:
    """As inria's `GaussianModel`."""

    def __init__(self, scales: int = 3, device: str = "cpu") -> None:
        self.active_sh_degree = 1
        self._xyz = rand(N, 3).to(device)
        self._features_dc = rand(N, 1, 3).to(device)
        self._features_rest = rand(N, 15, 3).to(device)
        self._scaling = rand(N, scales).to(device)
        self._rotation = rand(N, 4).to(device)
        self._opacity = rand(N, 1).to(device)
        self.scaling_activation: Any = torch.exp
        self.opacity_activation: Any = torch.sigmoid
        self.rotation_activation: Any = torch.nn.functional.normalize

    @property
    def get_xyz(self) -> torch.Tensor:
        return self._xyz

    @property
    def get_scaling(self) -> torch.Tensor:
        return self.scaling_activation(self._scaling)

    @property
    def get_rotation(self) -> torch.Tensor:
        return self.rotation_activation(self._rotation)

    @property
    def get_opacity(self) -> torch.Tensor:
        return self.opacity_activation(self._opacity)

    @property
    def get_features(self) -> torch.Tensor:
        return torch.cat((self._features_dc, self._features_rest), dim=1)


class Bound(Model):
    """As GaussianAvatars' model: moves with the faces of a mesh, once it is bound to
    them.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device=device)
        self.binding: torch.Tensor | None = None
        self.face_center = torch.tensor([[1.0, 2.0, 3.0]], device=device)
        self.face_scaling = torch.tensor([[2.0]], device=device)

    @property
    def get_xyz(self) -> torch.Tensor:
        if self.binding is None:
            return self._xyz
        scaled = self._xyz * self.face_scaling[self.binding]
        return scaled + self.face_center[self.binding]

    @property
    def get_scaling(self) -> torch.Tensor:
        if self.binding is None:
            return self.scaling_activation(self._scaling)
        return self.scaling_activation(self._scaling) * self.face_scaling[self.binding]


# -- getters ---------------------------------------------------------------------------


def test_raw_tensors_are_shared_where_the_getters_are_usual() -> None:
    model = Model()
    bound = Bound()

    def exponential(scales: torch.Tensor) -> torch.Tensor:
        return torch.exp(scales)

    model.scaling_activation = exponential
    for unbound_model in (model, bound):
        layout = layout_of(unbound_model)
        fields, meta = published(unbound_model, layout)
        assert layout.match(unbound_model, {}) is not None, "not recognised again"
        assert meta["activated"] is False
        for field, source in (
            ("means", unbound_model._xyz),
            ("scales", unbound_model._scaling),
            ("quats", unbound_model._rotation),
            ("opacities", unbound_model._opacity),
            ("sh0", unbound_model._features_dc),
            ("shN", unbound_model._features_rest),
        ):
            assert fields[field].data_ptr() == source.data_ptr(), field


@pytest.mark.parametrize("device", DEVICES)
def test_activation_that_changes_during_training_counts(
    device: str,
) -> None:
    model = Model(device=device)
    layout = layout_of(model)
    assert published(model, layout)[1]["activated"] is False
    model.opacity_activation = torch.abs
    fields, meta = published(model, layout)
    assert meta["activated"] == (0.0, 1.0)
    assert torch.equal(fields["opacities"], model._opacity[:, 0].abs())
    assert fields["scales"].data_ptr() == model._scaling.data_ptr()
    layout = layout_of(model)
    model._opacity += 1
    assert torch.equal(
        published(model, layout)[0]["opacities"], model._opacity[:, 0].abs()
    )
    assert layout.match(model, {}) is not None, "not recognised again"
    model.opacity_activation = torch.sigmoid
    assert published(model, layout)[1]["activated"] is False


@pytest.mark.parametrize("device", DEVICES)
def test_model_that_moves_its_gaussians_is_published_as_moved(device: str) -> None:
    model = Bound(device)
    layout = layout_of(model)
    model.binding = torch.zeros(N, dtype=torch.int64, device=device)
    fields, meta = published(model, layout)
    assert torch.equal(fields["means"], model.get_xyz)
    assert torch.equal(fields["scales"], model.get_scaling)
    assert meta["activated"] == (1.0, 0.0), "opacities are as they were"
    assert fields["opacities"].data_ptr() == model._opacity.data_ptr()
    assert not fields["means"].requires_grad
    layout = layout_of(model)
    model.face_center = model.face_center + 1
    assert torch.equal(published(model, layout)[0]["means"], model.get_xyz)
    assert layout.match(model, {}) is not None, "not recognised again"
    model.binding = None
    assert published(model, layout)[1]["activated"] is False


def test_rotations_and_colours_of_getters_are_published() -> None:
    class Turned(Model):
        @property
        def get_rotation(self) -> torch.Tensor:
            return self._rotation.roll(1, 1)

        @property
        def get_features(self) -> torch.Tensor:
            return 2 * super().get_features

    model = Turned()
    fields, _ = published(model)
    assert torch.equal(fields["quats"], model._rotation.roll(1, 1))
    assert torch.equal(fields["sh0"], 2 * model._features_dc[:, 0])
    assert torch.equal(fields["shN"], 2 * model._features_rest)


def test_activation_without_a_getter_counts() -> None:
    raw_tensors = {
        name: value for name, value in vars(Model()).items() if name[0] == "_"
    }
    model = SimpleNamespace(**raw_tensors, opacity_activation=torch.abs)
    fields, meta = published(model)
    assert meta["activated"] == (0.0, 1.0)
    assert torch.equal(fields["opacities"], model._opacity[:, 0].abs())


class Keeping(Model):
    """Counts the calls of its getters, and keeps what one of them gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.cached_opacity: torch.Tensor | None = None

    @property
    def get_scaling(self) -> torch.Tensor:
        self.calls += 1
        return 2 * self.scaling_activation(self._scaling)

    @property
    def get_opacity(self) -> torch.Tensor:
        if self.cached_opacity is None:
            self.cached_opacity = self._opacity.abs()
        return self.cached_opacity


def test_getters_that_count_calls_or_cache_values_are_published() -> None:
    model = Keeping()
    layout = layout_of(model)
    for _ in range(3):
        match = layout.match(model, {})
        assert match is not None
        fields = layout.frame(match[0])
        assert torch.equal(fields["scales"], 2 * model._scaling.exp())
        assert torch.equal(fields["opacities"], model._opacity.abs()[:, 0])
        assert match[1]["activated"] is True


class Staged(Model):
    """Changes its activation of opacities once it is late.

    The activation is a method of its own, or a function that looks the stage up.
    """

    def __init__(self, as_method: bool) -> None:
        super().__init__()
        self.stage = {"late": False}
        stage = self.stage

        def activation(values: torch.Tensor) -> torch.Tensor:
            if stage["late"]:
                return values.abs()
            return torch.sigmoid(values)

        self.is_late = False
        self.opacity_activation = activation
        if as_method:
            self.opacity_activation = self._method

    def _method(self, values: torch.Tensor) -> torch.Tensor:
        if self.is_late:
            return values.abs()
        return torch.sigmoid(values)


@pytest.mark.parametrize("as_method", [True, False])
def test_activation_that_depends_on_other_state_is_noticed(
    as_method: bool,
) -> None:
    model = Staged(as_method)
    layout = layout_of(model)
    fields, meta = published(model, layout)
    opacities = fields["opacities"]
    if meta["activated"] is False:
        opacities = torch.sigmoid(opacities)
    assert torch.allclose(opacities, torch.sigmoid(model._opacity[:, 0]))
    model.is_late = True
    model.stage["late"] = True
    fields, meta = published(model, layout)
    assert meta["activated"] == (0.0, 1.0)
    assert torch.equal(fields["opacities"], model._opacity.abs()[:, 0])


class Forwarding:
    """Forwards every attribute to another object, as proxies do."""

    def __init__(self, model: Any) -> None:
        self.inner = model

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class Compiled(Forwarding):
    """As torch.compile's module."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._orig_mod = model


class Absolute(Model):
    @property
    def get_opacity(self) -> torch.Tensor:
        return self._opacity.abs()


@pytest.mark.parametrize("wrapper", [Forwarding, Compiled])
def test_getters_behind_forwarding_wrappers_count(wrapper: Any) -> None:
    model = Absolute()
    fields, meta = published(wrapper(model))
    opacities = model._opacity.abs()[:, 0]
    assert torch.allclose(fields["opacities"], opacities)
    scales = fields["scales"]
    if meta["activated"] == (0.0, 1.0):
        scales = scales.exp()
    assert torch.allclose(scales, model._scaling.exp())


def test_getter_behind_a_weak_reference_counts() -> None:
    model = Absolute()
    fields, _ = published(weakref.proxy(model))
    assert torch.equal(fields["opacities"], model._opacity.abs()[:, 0])


class OfArrays:
    """A model of NumPy, whose opacities are activated in its own way."""

    def __init__(self) -> None:
        for name, value in vars(Model()).items():
            if isinstance(value, torch.Tensor):
                setattr(self, name, value.numpy())

    @property
    def get_opacity(self) -> Any:
        return np.abs(np.asarray(self.__dict__["_opacity"]))

    def get_scaling(self) -> Any:
        return np.exp(np.asarray(self.__dict__["_scaling"]))


def test_getters_that_return_arrays_of_other_libraries_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = OfArrays()
    layout = layout_of(model)
    for _ in range(2):
        fields, meta = published(model, layout)
        assert meta["activated"] is True
        raw = Model()
        assert torch.equal(fields["opacities"], raw._opacity.abs()[:, 0])
        assert torch.allclose(fields["scales"], raw._scaling.exp())
    assert not caplog.records


def test_compiled_models_are_shared_in_place() -> None:
    model = Model()
    fields, meta = published(Compiled(model))
    assert meta["activated"] is False
    assert fields["means"].data_ptr() == model._xyz.data_ptr()


class Named(NamedTuple):
    means: torch.Tensor
    quats: torch.Tensor
    scales: torch.Tensor
    opacities: torch.Tensor
    sh0: torch.Tensor
    shN: torch.Tensor  # noqa: N815


def test_named_tuples_are_read_by_their_names() -> None:
    scene = Named(
        rand(N, 3), rand(N, 4), rand(N, 3), rand(N), rand(N, 1, 3), rand(N, 15, 3)
    )
    fields, meta = published(scene)
    assert meta["activated"] is False
    for name in ("means", "quats", "scales", "opacities", "shN"):
        assert torch.equal(fields[name], getattr(scene, name)), name


def test_getter_that_fails_is_logged_once_and_training_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Model):
        @property
        def get_scaling(self) -> torch.Tensor:
            raise RuntimeError("no mesh yet")

    model = Failing()
    with caplog.at_level(logging.WARNING, "splatview"):
        for _ in range(2):
            published(model)
        fields, meta = published(model)
    assert fields["scales"].data_ptr() == model._scaling.data_ptr()
    assert meta["activated"] is False
    assert [r.message.partition(": ")[2] for r in caplog.records] == [
        "a getter of Failing cannot be used, so that its raw tensor is shown: no mesh "
        "yet"
    ]


def test_getters_of_unusable_shapes_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(Model):
        @property
        def get_rotation(self) -> torch.Tensor:
            return torch.eye(3).expand(N, 3, 3)

        @property
        def get_features(self) -> torch.Tensor:
            return self._features_dc[:, 0]

        @property
        def get_opacity(self) -> torch.Tensor:
            return self._opacity.abs()

    model = Odd()
    with caplog.at_level(logging.WARNING, "splatview"):
        fields, meta = published(model)
    assert fields["quats"].data_ptr() == model._rotation.data_ptr()
    assert fields["shN"].data_ptr() == model._features_rest.data_ptr()
    assert torch.equal(fields["opacities"], model._opacity[:, 0].abs())
    assert meta["activated"] == (0.0, 1.0)
    assert len(caplog.records) == 2


def test_model_of_modules_with_fewer_gaussians_is_read_by_its_getters() -> None:
    class Masked(torch.nn.Module):
        """Shows every other one, with an activation that is a module."""

        def __init__(self) -> None:
            super().__init__()
            for name, value in vars(Model()).items():
                if isinstance(value, torch.Tensor):
                    setattr(self, name, torch.nn.Parameter(value))
            self.opacity_activation = torch.nn.Softplus()

        @property
        def get_xyz(self: Any) -> torch.Tensor:
            return self._xyz[::2]

        @property
        def get_rotation(self: Any) -> torch.Tensor:
            return self._rotation[::2]

        @property
        def get_scaling(self: Any) -> torch.Tensor:
            return self._scaling[::2].exp()

        @property
        def get_opacity(self: Any) -> torch.Tensor:
            return self.opacity_activation(self._opacity)[::2]

        @property
        def get_features(self: Any) -> torch.Tensor:
            harmonics = (self._features_dc, self._features_rest)
            return torch.cat(harmonics, 1)[::2]

    model: Any = Masked()
    fields, meta = published(model)
    assert meta["activated"] is True
    for name, field in fields.items():
        assert len(field) == N // 2, name
    softplus = torch.nn.functional.softplus(model._opacity[::2, 0])
    assert torch.equal(fields["opacities"], softplus.detach())


@pytest.mark.cuda
def test_getters_are_not_called_while_a_graph_is_captured() -> None:
    model = Model(device="cuda")
    model.opacity_activation = torch.abs
    layout = layout_of(model)
    published(model, layout)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model._opacity.mul_(2)
        match_of_known = layout.match(model, {})
        new_layout = layout_of(model)
        match_of_new = new_layout.match(model, {})
    assert match_of_known is not None
    assert match_of_new is not None
    assert new_layout.match(model, {}) is None, "recognised again when that is over"


def test_callers_activated_option_precedes_getters() -> None:
    model = Model()
    model.opacity_activation = torch.abs
    fields, meta = published(model, activated=(False, True))
    assert meta["activated"] == (0.0, 1.0)
    assert fields["opacities"].data_ptr() == model._opacity.data_ptr()


@pytest.mark.cuda
def test_models_with_getters_of_their_own_are_published_without_waiting() -> None:
    model = Bound("cuda")
    model.binding = torch.zeros(N, dtype=torch.int64, device="cuda")
    model.opacity_activation = torch.abs
    published(model)
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        # PyTorch warns that this mode does not see everything.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(2):
            published(model)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# -- activated -------------------------------------------------------------------------


def test_activated_is_stated_for_scales_and_opacities_apart() -> None:
    scene = {
        "means": rand(N, 3),
        "quats": rand(N, 4),
        "scales": rand(N, 3),
        "opacities": rand(N),
        "colors": rand(N, 3),
    }
    for option, expected in (
        ((True, False), (1.0, 0.0)),
        ([False, True], (0.0, 1.0)),
        ((True, True), True),
        (False, False),
    ):
        assert published(scene, activated=option)[1]["activated"] == expected
    for bad in ((True,), (True, False, True), (2, 0), ("yes", True), "yes"):
        with pytest.raises(TypeError, match=r"True, False or a pair of them"):
            published(scene, activated=bad)


# -- flat Gaussians and the 3D filter --------------------------------------------------


def test_two_scales_are_published_as_two_without_a_copy() -> None:
    model = Model(scales=2)
    fields, _ = published(model)
    assert fields["scales"].shape == (N, 2)
    assert fields["scales"].data_ptr() == model._scaling.data_ptr()


def test_filter_of_a_model_counts_once_it_fits() -> None:
    model: Any = Model()
    layout = layout_of(model)
    assert "filter_3D" not in published(model, layout)[0]
    for stale in (None, rand(N + 1, 1)):
        model.filter_3D = stale
        assert "filter_3D" not in published(model, layout)[0]
    model.filter_3D = rand(N, 1).abs()
    fields, meta = published(model, layout)
    assert torch.equal(fields["filter_3D"], model.filter_3D[:, 0])
    assert meta["activated"] is False
    mapping = {"xyz": model._xyz, "rotation": model._rotation, "f_dc": rand(N, 3)}
    mapping |= {"scaling": model._scaling, "opacity": model._opacity}
    fields, _ = published({**mapping, "filter_3D": rand(N)})
    assert torch.equal(fields["filter_3D"], rand(N))
    with pytest.raises(ValueError, match=r"filter_3D has shape \(7,\)"):
        published({**mapping, "filter_3D": rand(N + 1)})


def test_scales_of_a_filtering_getter_are_not_filtered_again() -> None:
    class Filtered(Model):
        def __init__(self) -> None:
            super().__init__()
            self.filter_3D = torch.full((N, 1), 0.3)

        @property
        def get_scaling(self) -> torch.Tensor:
            return (self._scaling.exp().square() + self.filter_3D.square()).sqrt()

    model = Filtered()
    fields, meta = published(model)
    assert "filter_3D" not in fields
    assert meta["activated"] == (1.0, 0.0)
    assert torch.equal(fields["scales"], model.get_scaling)


# -- names and wrappers ----------------------------------------------------------------


def parameters(**extra: torch.Tensor) -> dict[str, torch.Tensor]:
    return {
        "means": rand(N, 3),
        "quats": rand(N, 4),
        "scales": rand(N, 3),
        "opacities": rand(N),
        "sh0": rand(N, 1, 3),
        **extra,
    }


class Lightning(torch.nn.Module):
    """As the models of gaussian-splatting-lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.gaussians = torch.nn.ParameterDict(
            {
                "means": rand(N, 3),
                "shs_dc": rand(N, 1, 3),
                "shs_rest": rand(N, 15, 3),
                "opacities": rand(N, 1),
                "scales": rand(N, 3),
                "rotations": rand(N, 4),
            }
        )
        self.register_buffer("_active_sh_degree", torch.tensor(2, dtype=torch.uint8))

    def scale_activation(self, scales: torch.Tensor) -> torch.Tensor:
        return torch.exp(scales)

    def get_scales(self) -> torch.Tensor:
        return self.scale_activation(self.gaussians["scales"])


def test_common_prefix_of_names_is_ignored() -> None:
    tensors = parameters()
    for prefix in ("module.splats.", "_model.gauss_params."):
        named = {f"{prefix}{name}": value for name, value in tensors.items()}
        fields, meta = published({**named, "module.mlp.weight": rand(3, 3)})
        assert meta["activated"] is False
        assert torch.equal(fields["means"], tensors["means"])
    fields, _ = published({"step": 3, "splats": tensors})
    assert torch.equal(fields["scales"], tensors["scales"])


def test_wrapped_models_are_unwrapped() -> None:
    model = Lightning()
    holder = torch.nn.Module()
    holder.inner = torch.nn.ParameterDict(parameters())
    for value, means in (
        (model, model.gaussians["means"]),
        (torch.nn.DataParallel(model), model.gaussians["means"]),
        (
            SimpleNamespace(module=SimpleNamespace(model=model)),
            model.gaussians["means"],
        ),
        (torch.nn.DataParallel(holder), holder.inner["means"]),
        (SimpleNamespace(splats=parameters()), parameters()["means"]),
        (SimpleNamespace(gaussians=Model()), Model()._xyz),
    ):
        fields, meta = published(value)
        assert torch.equal(fields["means"], means)
        assert meta["activated"] is False
    for value in (model, torch.nn.DataParallel(model)):
        assert published(value)[1]["sh_degree"] == 2


def test_models_of_3dgrut_and_fvdb_are_recognised_by_their_attributes() -> None:
    grut = SimpleNamespace(
        positions=rand(N, 3),
        rotation=rand(N, 4),
        scale=rand(N, 3),
        density=rand(N, 1),
        features_albedo=rand(N, 3),
        features_specular=rand(N, 24),
        n_active_features=1,
    )
    fields, meta = published(grut)
    assert (meta["activated"], meta["sh_degree"]) == (False, 1)
    assert torch.equal(fields["shN"], grut.features_specular.reshape(N, 8, 3))
    raw = parameters()
    fvdb = SimpleNamespace(
        means=raw["means"],
        quats=raw["quats"],
        log_scales=raw["scales"],
        scales=raw["scales"].exp(),
        logit_opacities=raw["opacities"],
        opacities=raw["opacities"].sigmoid(),
        sh0=raw["sh0"],
        shN=rand(N, 3, 3),
    )
    fields, meta = published(fvdb)
    assert meta["activated"] is False
    assert fields["scales"].data_ptr() == raw["scales"].data_ptr()
    assert fields["opacities"].data_ptr() == raw["opacities"].data_ptr()


# -- splatfacto ------------------------------------------------------------------------


def splatfacto(rest_count: int, **config: Any) -> Any:
    tensors = parameters(features_dc=rand(N, 3), features_rest=rand(N, rest_count, 3))
    del tensors["sh0"]
    return SimpleNamespace(
        gauss_params=torch.nn.ParameterDict(tensors),
        config=SimpleNamespace(
            sh_degree_interval=1000, **{"rasterize_mode": "classic", **config}
        ),
        step=2500,
    )


def test_splatfacto_without_harmonics_holds_logits() -> None:
    model = splatfacto(0)
    for value in (model, model.gauss_params):
        fields, meta = published(value)
        assert meta["color"] == "rgb_logit"
        assert torch.equal(fields["rgb"], model.gauss_params["features_dc"])
        assert "shN" not in fields
    assert published(splatfacto(15))[1]["color"] == "sh"


def test_splatfacto_states_its_mode_and_the_degree_in_use() -> None:
    model = splatfacto(15, rasterize_mode="antialiased")
    layout = layout_of(model)
    _, meta = published(model, layout)
    assert (meta["antialiased"], meta["sh_degree"]) == (True, 2)
    model.step = 90_000
    assert published(model, layout)[1]["sh_degree"] == 3
    assert published(model, layout, antialiased=False)[1]["antialiased"] is False
    assert published(splatfacto(15))[1]["antialiased"] is False
