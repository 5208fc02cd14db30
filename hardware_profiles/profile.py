"""The schema of a hardware profile: vendor facts, fitted figures, provenance of every number."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hardware_profiles.figures import Figure, Provenance
from hardware_profiles.kernels import Kernels
from hardware_profiles.overheads import EngineOverheads
from sim.errors import InputError
from sim.schema import StrictModel

# A dtype whose peak is not listed runs at the peak of the next one here.
_WIDER = {"fp4": "fp8", "fp8": "bf16", "int8": "bf16", "fp16": "bf16", "bf16": "fp32"}


class Memory(StrictModel):
    """Device memory. ``visible_bytes`` is what the driver reports to a program, less than the nameplate capacity.

    ``sustained_fraction`` is the speed of memory-bound products and attention in service over that of isolated kernels:
    above 1 where kernels that follow each other overlap what a timing loop sees in full; None = 1.
    """

    capacity_bytes: Figure
    visible_bytes: Figure
    bandwidth_bytes_per_s: Figure
    l2_bytes: Figure | None = None
    sustained_fraction: Figure | None = None


class Compute(StrictModel):
    """Dense matrix peaks by dtype (``bf16``, ``fp8``, ``int8``, ``fp4``, ``fp32``) and the number of cores.

    ``sustained_fraction`` is the compute speed in continuous serving over that of isolated kernels, as power and clocks
    allow; None = 1.
    """

    peak_flops: dict[str, Figure] = Field(min_length=1)
    multiprocessors: Figure | None = None
    sustained_fraction: Figure | None = None


class Links(StrictModel):
    """Bandwidths of one GPU, one direction: to its node (``gpu``), to the host (PCIe), to other nodes."""

    kind: Literal["nvlink", "pcie", "infinity-fabric", "ethernet", "ici", "c2c", "none"]
    gpu_bytes_per_s: Figure
    host_bytes_per_s: Figure
    inter_node_bytes_per_s: Figure
    gpus_per_node: int = Field(ge=1)


class Power(StrictModel):
    """Board power in watts."""

    tdp_w: Figure
    idle_w: Figure


class Price(StrictModel):
    """What one GPU costs an hour, on demand."""

    usd_per_hour: Figure
    date: str = Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")


class Sibling(StrictModel):
    """A measured device to scale from; ``bandwidth``: how much more of its datasheet this one reaches (None = 1)."""

    profile: str
    bandwidth: Figure | None = None


class StepTimeError(StrictModel):
    """Relative error of whole predicted steps against measured ones, as fractions."""

    p50: float = Field(ge=0)
    p90: float = Field(ge=0)
    provenance: Provenance
    source: str = Field(min_length=3)


class HardwareProfile(StrictModel):
    """One accelerator as servecast knows it.

    ``kernels_from`` names a measured device of the same architecture whose kernel figures are scaled to this one where
    it has none of its own.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    aliases: tuple[str, ...] = ()
    device: str
    vendor: str
    generation: str
    memory: Memory
    compute: Compute
    links: Links
    power: Power
    price: Price | None = None
    step_time_error: StepTimeError | None = None
    kernels_from: Sibling | None = None
    kernels: Kernels = Kernels()
    engines: dict[str, EngineOverheads] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def step_error(self) -> StepTimeError:
        """How far predicted steps are off: as measured for this device, else as is usual for how it was calibrated."""
        if self.step_time_error is not None:
            return self.step_time_error
        return _USUAL_ERROR["fitted" if self.calibrated else "scaled" if self.kernels_from else "datasheet"]

    @property
    def memory_visible_bytes(self) -> int:
        """Bytes that the driver reports."""
        return int(self.memory.visible_bytes.value)

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Datasheet memory bandwidth."""
        return self.memory.bandwidth_bytes_per_s.value

    @property
    def sustained_fraction(self) -> float:
        """Compute speed in continuous serving over that of isolated kernels."""
        return self.compute.sustained_fraction.value if self.compute.sustained_fraction else 1.0

    @property
    def sustained_memory_fraction(self) -> float:
        """Memory speed in continuous serving over that of isolated kernels."""
        return self.memory.sustained_fraction.value if self.memory.sustained_fraction else 1.0

    @property
    def tdp_w(self) -> float:
        """Board power limit, watts."""
        return self.power.tdp_w.value

    @property
    def idle_w(self) -> float:
        """Idle board power, watts."""
        return self.power.idle_w.value

    @property
    def usd_per_hour(self) -> float | None:
        """On-demand price of one GPU for an hour, None where none is known."""
        return self.price.usd_per_hour.value if self.price else None

    @property
    def calibrated(self) -> bool:
        """Whether GEMM and attention were fitted to measurements of this very device."""
        sections = (self.kernels.gemm, self.kernels.decode_attention, self.kernels.prefill_attention)
        return all(any(fit.provenance in ("fitted", "measured") for fit in group.values()) for group in sections)

    def peak_flops(self, dtype: str) -> float:
        """Dense peak for ``dtype``; a dtype without matrix units of its own runs as the next wider one.

        Raises:
            InputError: no peak is listed for the dtype or any wider one.
        """
        wanted: str | None = dtype
        while wanted is not None:
            if wanted in self.compute.peak_flops:
                return self.compute.peak_flops[wanted].value
            wanted = _WIDER.get(wanted)
        raise InputError(
            f"hardware {self.name}: compute.peak_flops",
            f"no peak for {dtype!r} or wider",
            f"listed: {', '.join(sorted(self.compute.peak_flops))}",
        )


_USUAL_ERROR = {
    "fitted": StepTimeError(p50=0.05, p90=0.12, provenance="assumed", source="twice that of the devices with runs"),
    "scaled": StepTimeError(p50=0.12, p90=0.30, provenance="assumed", source="scaled from another device"),
    "datasheet": StepTimeError(
        p50=0.20, p90=0.50, provenance="assumed", source="typical efficiencies of other devices"
    ),
}
