# SPDX-FileCopyrightText: Copyright (c) 2026 the nccl-uzip authors
# SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch program: collectives, then DDP training of a small transformer in bf16. It knows nothing of UZIP.

One process per rank, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Each rank writes a JSON file with a
SHA-256 per collective's output, the losses as hexadecimal floats and a SHA-256 of the trained parameters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sysconfig
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, CONTEXT, BATCH = 256, 128, 16
SIZES = (1, 1025, 65537, 1 << 20, (8 << 20) + 3)


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mask = torch.full((t, t), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
        weights = torch.softmax(q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5 + mask, dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(b, t, c))
        y: torch.Tensor = self.mlp(self.norm2(x))
        return x + y


class Transformer(nn.Module):
    """A byte-level language model."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def digest(t: torch.Tensor) -> str:
    return hashlib.sha256(t.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def corpus() -> torch.Tensor:
    """The text: sources of Python's standard library, as bytes."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:120]
    return torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8).long()


def collectives(device: torch.device) -> dict[str, str]:
    """All-reduces and broadcasts; a digest per output."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ops = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "prod": dist.ReduceOp.PRODUCT}
    ops |= {"min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
    found = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for n in SIZES:
            gen = torch.Generator(device=device).manual_seed(1000 * rank + n)
            x = (torch.randn(n, generator=gen, device=device) * 0.02).to(dtype)
            for name, op in ops.items():
                y = x.clone()
                dist.all_reduce(y, op)
                found[f"all_reduce/{name}/{dtype}/{n}"] = digest(y)
            for root in range(ranks):
                y = x.clone()
                dist.broadcast(y, root)
                found[f"broadcast/{root}/{dtype}/{n}"] = digest(y)
    return found


def train(device: torch.device, steps: int, width: int, layers: int) -> dict[str, Any]:
    """Train for ``steps`` steps; the loss of every step as a hexadecimal float."""
    torch.manual_seed(0)
    model = Transformer(width, layers, heads=width // 64).to(device, torch.bfloat16)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=3e-4)
    text = corpus().to(device)
    gen = torch.Generator(device=device).manual_seed(17 + dist.get_rank())
    losses = []
    begin = time.monotonic()
    for _ in range(steps):
        at = torch.randint(0, len(text) - CONTEXT - 1, (BATCH, 1), generator=gen, device=device)
        rows = text[at + torch.arange(CONTEXT + 1, device=device)]
        logits = ddp(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss).hex())
    parameters = hashlib.sha256("".join(digest(p) for p in model.parameters()).encode()).hexdigest()
    size = sum(p.numel() for p in model.parameters())
    return {"losses": losses, "parameters": parameters, "values": size, "seconds": time.monotonic() - begin}


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--out", type=Path, required=True, help="folder for rankN.json")
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--backend", default="nccl")
    args = p.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    device = torch.device("cuda", 0) if args.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend)
    result = {"collectives": collectives(device)}
    if dist.get_rank() == 0:
        print(f"{len(result['collectives'])} collectives done, {args.steps} training steps ...", flush=True)
    result |= train(device, args.steps, args.width, args.layers)
    (args.out / f"rank{dist.get_rank()}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
