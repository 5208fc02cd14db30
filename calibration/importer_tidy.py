"""Turn one published table into rows of the tidy schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from calibration.importer_tables import Kind, Table

if TYPE_CHECKING:
    import pandas as pd

_ELEMENT_BYTES: Final = 2  # message sizes count 16-bit elements
_NCCL: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}


def _frame(rows: pd.DataFrame, family: Any, dtype: Any, /, **columns: Any) -> pd.DataFrame:
    import pandas as pd

    head = {"family": family, "dtype": dtype, "seconds": rows["latency"] * 1e-3}
    return pd.DataFrame({**head, **columns}, index=rows.index)


def _gemm(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = rows[rows["gemm_dtype"].isin(table.dtypes)]
    return _frame(rows, "gemm", rows["gemm_dtype"].map(table.dtypes), m=rows["m"], n=rows["n"], k=rows["k"])


def _attention_rows(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Full attention computed in 16 bit over a cache of a dtype that is asked for."""
    kept = rows["kv_cache_dtype"].isin(table.dtypes) & (rows["attn_dtype"] == "bfloat16")
    if "window_size" in rows:
        kept &= rows["window_size"] == 0
    if "beam_width" in rows:
        kept &= rows["beam_width"] == 1
    return rows[kept & (rows["head_dim"] <= 256)]


def _heads(rows: pd.DataFrame) -> dict[str, Any]:
    return {"heads": rows["num_heads"], "kv_heads": rows["num_key_value_heads"], "head_dim": rows["head_dim"]}


def _decode(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = _attention_rows(rows, table)
    dtype, context = rows["kv_cache_dtype"].map(table.dtypes), rows["step"] + 1
    return _frame(rows, "decode_attention", dtype, batch=rows["batch_size"], context=context, **_heads(rows))


def _prefill(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = _attention_rows(rows, table)
    rows = rows[rows["step"] == 0]
    dtype = rows["kv_cache_dtype"].map(table.dtypes)
    return _frame(rows, "prefill_attention", dtype, batch=rows["batch_size"], new=rows["isl"], **_heads(rows))


def _mla(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = rows[rows["kv_cache_dtype"].isin(table.dtypes) & (rows["mla_dtype"] == "bfloat16")]
    by = ["kv_cache_dtype", "num_heads", "batch_size", "isl", "step"]
    return rows.groupby(by)["latency"].median().reset_index()


def _mla_decode(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = _mla(rows, table)
    dtype, context = rows["kv_cache_dtype"].map(table.dtypes), rows["step"] + 1
    return _frame(rows, "mla_decode", dtype, batch=rows["batch_size"], context=context, heads=rows["num_heads"])


def _mla_prefill(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    rows = _mla(rows, table)
    rows = rows[rows["step"] == 0]
    dtype = rows["kv_cache_dtype"].map(table.dtypes)
    return _frame(rows, "mla_prefill", dtype, batch=rows["batch_size"], new=rows["isl"], heads=rows["num_heads"])


def _experts(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Balanced rows only: every expert of the rank gets the same share, so the active ones are known."""
    rows = rows[rows["moe_dtype"].isin(table.dtypes) & (rows["distribution"] == "balanced")]
    here = rows["num_experts"] / rows["moe_ep_size"]
    pairs = (rows["num_tokens"] * rows["topk"] / rows["moe_ep_size"]).clip(lower=1.0)
    return _frame(
        rows,
        "experts",
        rows["moe_dtype"].map(table.dtypes),
        rows=pairs,
        active=pairs.clip(upper=here),
        experts=here,
        hidden=rows["hidden_size"],
        width=rows["inter_size"] / rows["moe_tp_size"],
        projections=3.0,
        ranks=rows["moe_ep_size"],
    )


def _quantize(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Static quantisation: 16-bit elements read, 8-bit ones written; stands for every memory-bound kernel."""
    rows = rows[rows["quant_dtype"].isin(table.dtypes)]
    return _frame(rows, "elementwise", "any", bytes=3.0 * rows["m"] * rows["k"])


def _all_reduce(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """The engine's own all-reduce, replayed in a CUDA graph."""
    rows = rows[rows["backend"].str.endswith("_graph")]
    size = rows["message_size"] * float(_ELEMENT_BYTES)
    return _frame(rows, "all_reduce", "any", bytes=size, ranks=rows["num_gpus"])


def _nccl(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """NCCL for all but the all-reduce, which engines replace."""
    rows = rows[(rows["nccl_dtype"] == "half") & (rows["op_name"] != "all_reduce")]
    size = rows["message_size"] * float(_ELEMENT_BYTES)
    return _frame(rows, rows["op_name"].map(_NCCL), "any", bytes=size, ranks=rows["num_gpus"])


TIDY: Final[dict[Kind, Callable[[pd.DataFrame, Table], pd.DataFrame]]] = {
    "gemm": _gemm,
    "decode": _decode,
    "prefill": _prefill,
    "mla_decode": _mla_decode,
    "mla_prefill": _mla_prefill,
    "experts": _experts,
    "quantize": _quantize,
    "all_reduce": _all_reduce,
    "nccl": _nccl,
}
