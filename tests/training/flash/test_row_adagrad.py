from __future__ import annotations

import pytest
import torch

from sapbert.training.flash.row_adagrad import RowAdagrad


def test_a_sparse_update_equals_the_dense_formula() -> None:
    torch.manual_seed(0)
    table = torch.nn.Parameter(torch.randn(6, 4))
    expected, sums = table.detach().clone(), torch.zeros(6)
    optimizer = RowAdagrad([{"params": [table]}], lr=0.1)
    for rows in ([1, 4], [0, 1, 5], [4]):
        dense = torch.zeros(6, 4)
        dense[rows] = torch.randn(len(rows), 4)
        table.grad = torch.sparse_coo_tensor(
            torch.tensor([rows]), dense[rows], (6, 4), is_coalesced=True, check_invariants=False
        )
        optimizer.step()
        sums += dense.square().mean(dim=1)
        expected -= 0.1 * dense / (sums + 1e-20).sqrt()[:, None]
        torch.testing.assert_close(table.detach(), expected)
    assert torch.equal(table[2:4], expected[2:4])


def test_the_state_is_one_number_per_row_and_can_be_restored() -> None:
    tables = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    optimizers = [RowAdagrad([{"params": [table]}], lr=0.5) for table in tables]
    for number, (table, optimizer) in enumerate(zip(tables, optimizers, strict=True)):
        if number:
            table.data.copy_(tables[0].data)
            optimizer.load_state_dict(optimizers[0].state_dict())
        table.grad = torch.sparse_coo_tensor(
            torch.tensor([[1]]), torch.full((1, 2), 2.0), (3, 2), is_coalesced=True, check_invariants=False
        )
        optimizer.step()
    assert [value.shape for value in optimizers[0].state_dict()["state"][0].values()] == [(3,)]
    # The second optimizer continued with the sum of the first.
    assert tables[1][1, 0].item() == pytest.approx(1 - 0.5 - 0.5 * 2 / 8**0.5)
