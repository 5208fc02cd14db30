"""What the hardware can do: one YAML a GPU, every number with its provenance."""

from hardware_profiles.loader import engine_names, hardware_names, load_engine_overheads, load_hardware
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile

__all__ = [
    "EngineOverheads",
    "HardwareProfile",
    "engine_names",
    "hardware_names",
    "load_engine_overheads",
    "load_hardware",
]
