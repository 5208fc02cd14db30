"""Which tables of ``aiconfigurator-core`` 0.12.0 feed which family, and the columns that they must have."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["gemm", "decode", "prefill", "mla_decode", "mla_prefill", "experts", "quantize", "all_reduce", "nccl"]


class Columns(NamedTuple):
    """Columns that the reader uses, and all that the known version has."""

    needed: frozenset[str]
    all: frozenset[str]


class Table(NamedTuple):
    """One file: its kind, its path below the system, and what to keep (their dtype to ours)."""

    kind: Kind
    path: str
    dtypes: dict[str, str] = {}  # noqa: RUF012


class System(NamedTuple):
    """A device: its folder, and its tables."""

    folder: str
    tables: tuple[Table, ...]


def _columns(needed: str, more: str = "") -> Columns:
    head = "framework version device op_name kernel_source latency power"
    wanted = frozenset(needed.split())
    return Columns(wanted | {"latency"}, wanted | frozenset(f"{head} {more}".split()))


_ATTENTION: Final = "batch_size isl num_heads num_key_value_heads head_dim attn_dtype kv_cache_dtype step"
_MLA: Final = "mla_dtype kv_cache_dtype num_heads batch_size isl step"

COLUMNS: Final[dict[Kind, Columns]] = {
    "gemm": _columns("gemm_dtype m n k"),
    "decode": _columns(_ATTENTION, "window_size beam_width"),
    "prefill": _columns(_ATTENTION, "window_size beam_width"),
    "mla_decode": _columns(_MLA, "tp_size"),
    "mla_prefill": _columns(_MLA, "tp_size"),
    "experts": _columns(
        "moe_dtype num_tokens hidden_size inter_size topk num_experts moe_tp_size moe_ep_size distribution"
    ),
    "quantize": _columns("m k quant_dtype"),
    "all_reduce": _columns("allreduce_dtype num_gpus message_size", "backend implementation"),
    "nccl": _columns("nccl_dtype num_gpus message_size op_name"),
}

_KV: Final = {"bfloat16": "bf16", "fp8": "fp8"}


def _attention(framework: str, version: str, kv: dict[str, str]) -> list[Table]:
    base = f"attention/{framework}/{version}"
    return [
        Table("decode", f"{base}/generation_attention_perf.parquet", kv),
        Table("prefill", f"{base}/context_attention_perf.parquet", kv),
    ]


def _mla(decode: str, prefill: str, kv: dict[str, str]) -> list[Table]:
    return [
        Table("mla_decode", f"mla/{decode}/generation_mla_perf.parquet", kv),
        Table("mla_prefill", f"mla/{prefill}/context_mla_perf.parquet", kv),
    ]


def _current(
    folder: str,
    nccl: str,
    comm: str,
    *,
    block: str,
    mla_prefill: str,
    fp4: bool,
    wide: bool = False,
    hopper: bool = False,
) -> System:
    """A device of the current collection (vLLM 0.24.0, SGLang 0.5.14, TensorRT-LLM 1.3.0rc20).

    ``wide`` devices (data-centre Blackwell) multiply MXFP4 weights with 8-bit activations. On Hopper the per-tensor FP8
    expert rows were taken with an untuned kernel, five times slower than the block-scaled ones of the same shapes and
    than TensorRT-LLM's own tuned rows; the block-scaled rows stand in for them. ``mla_prefill`` is a table of the
    expanded form, which engines run: SGLang's on other than ``wide`` devices was taken in the latent space, with 3.4
    times the products (collector/sglang/collect_mla.py).
    """
    dense = {"bfloat16": "bf16", "fp8": "fp8"} | ({"nvfp4": "nvfp4"} if fp4 else {})
    experts = dense | {"fp8_block": "fp8_block", "int4_wo": "w4a16"}
    experts["w4a8_mxfp4_mxfp8" if wide else "w4a16_mxfp4"] = "mxfp4"
    return System(
        folder,
        (
            Table("gemm", "gemm/vllm/0.24.0/gemm_perf.parquet", dense),
            Table("gemm", f"gemm/{block}/gemm_perf.parquet", {"fp8_block": "fp8_block"}),
            *_attention("vllm", "0.24.0", _KV),
            *_mla(_SGLANG, mla_prefill, _KV),
            *_experts(experts, hopper),
            Table("quantize", "quantize/vllm/0.24.0/scale_matrix_perf.parquet", {"fp8": ""}),
            Table("all_reduce", f"comm/vllm/{comm}/custom_allreduce_perf.parquet"),
            Table("nccl", f"comm/nccl/{nccl}/nccl_perf.parquet"),
        ),
    )


def _experts(dtypes: dict[str, str], hopper: bool) -> list[Table]:
    path = "moe/vllm/0.24.0/moe_perf.parquet"
    if not hopper:
        return [Table("experts", path, dtypes)]
    tuned = {theirs: ours for theirs, ours in dtypes.items() if ours != "fp8"}
    return [Table("experts", path, tuned), Table("experts", path, {"fp8_block": "fp8"})]


_SGLANG: Final = "sglang/0.5.14"
_TRTLLM: Final = "trtllm/1.3.0rc20"

SYSTEMS: Final[dict[str, System]] = {
    "a100-sxm-80gb": System(
        "a100_sxm",
        (
            Table("gemm", "gemm/vllm/0.14.0/gemm_perf.parquet", {"bfloat16": "bf16"}),
            Table(
                "gemm", "gemm/trtllm/1.0.0/gemm_perf.parquet", {"int8_wo": "w8a16", "int4_wo": "w4a16", "sq": "int8"}
            ),
            *_attention("vllm", "0.14.0", {"bfloat16": "bf16"}),
            *_mla("trtllm/1.0.0", "trtllm/1.0.0", {"bfloat16": "bf16"}),
            Table("experts", "moe/sglang/0.5.10/moe_perf.parquet", {"bfloat16": "bf16", "int4_wo": "w4a16"}),
            Table("all_reduce", "comm/vllm/0.14.0/custom_allreduce_perf.parquet"),
            Table("nccl", "comm/nccl/2.27.3/nccl_perf.parquet"),
        ),
    ),
    "h100-sxm": System(
        "h100_sxm",
        (
            *_current(
                "h100_sxm", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_TRTLLM, fp4=False, hopper=True
            ).tables,
            Table("gemm", "gemm/sglang/0.5.6.post2/gemm_perf.parquet", {"int8_wo": "w8a16"}),
        ),
    ),
    "h200-sxm": _current("h200_sxm", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_TRTLLM, fp4=False, hopper=True),
    "b200": _current("b200_sxm", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_SGLANG, fp4=True, wide=True),
    "b300": _current("b300_sxm", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_SGLANG, fp4=True, wide=True),
    "gb200": _current("gb200", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_SGLANG, fp4=True, wide=True),
    "gb300": _current("gb300", "2.29.2", "0.24.0", block=_SGLANG, mla_prefill=_SGLANG, fp4=True, wide=True),
    "l40s": _current("l40s", "2.27.3", "0.22.0", block=_TRTLLM, mla_prefill="trtllm/1.0.0", fp4=False),
    "rtx-pro-6000": _current("rtx_pro_6000_server", "2.29.2", "0.24.0", block=_TRTLLM, mla_prefill=_TRTLLM, fp4=True),
}
