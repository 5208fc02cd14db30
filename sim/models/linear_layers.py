"""Mixers whose state does not grow with the sequence: gated delta net (Qwen3-Next) and Mamba-2 (Nemotron-H)."""

from __future__ import annotations

from sim.models.architecture import Attention
from sim.models.config_reader import ConfigReader


def gated_delta_net(config: ConfigReader) -> Attention:
    """Qwen3-Next's linear attention: a (value heads, key dim, value dim) state a sequence.

    Projections: q, k, v and the output gate z from hidden; b and a, one a value head; a depthwise convolution over
    q, k and v; output projection; A_log, dt_bias and the gated norm.
    """
    hidden = config.integer("hidden_size")
    key_heads, key_dim = config.integer("linear_num_key_heads"), config.integer("linear_key_head_dim")
    value_heads, value_dim = config.integer("linear_num_value_heads"), config.integer("linear_value_head_dim")
    kernel = config.integer("linear_conv_kernel_dim")
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    inner = value_heads * value_dim
    params = hidden * (channels + inner + 2 * value_heads) + channels * kernel + 2 * value_heads + value_dim
    return Attention(
        kind="linear",
        num_heads=value_heads,
        num_kv_heads=key_heads,
        head_dim=key_dim,
        v_head_dim=value_dim,
        state_elements=value_heads * key_dim * value_dim,
        conv_state_elements=channels * (kernel - 1),
        linear_params=params + inner * hidden,
    )


def mamba2(config: ConfigReader) -> Attention:
    """Mamba-2 mixer (arXiv 2405.21060): a (heads, head dim, state size) state a sequence."""
    hidden = config.integer("hidden_size")
    heads, head_dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    state, groups = config.integer("ssm_state_size"), config.integer("n_groups")
    kernel, inner = config.integer("conv_kernel"), heads * head_dim
    channels = inner + 2 * groups * state
    conv = channels * kernel + (channels if config.flag("use_conv_bias", default=True) else 0)
    params = hidden * (inner + channels + heads) + conv + 3 * heads + inner + inner * hidden
    return Attention(
        kind="linear",
        num_heads=heads,
        num_kv_heads=groups,
        head_dim=state,
        v_head_dim=head_dim,
        state_elements=heads * head_dim * state,
        conv_state_elements=channels * (kernel - 1),
        linear_params=params,
    )
