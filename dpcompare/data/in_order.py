"""Work on many items at the same time, with results in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    pool: ThreadPoolExecutor,
    ahead: int,
    items: Iterator[Item],
    work: Callable[[Item], Result],
) -> Iterator[tuple[Item, Result]]:
    """Each item with ``work(item)``, in the order of the items.

    What an item or its work raises is raised when its turn comes: after the results of all items
    before it, as if one had followed the other.

    Args:
        pool: where the work is done.
        ahead: how many items may wait or be worked on, so that memory is bounded.
        items: taken one by one by the caller's thread.
        work: of one item.
    """
    coming: deque[tuple[Item | None, Future[Result]]] = deque()
    ended = False
    try:
        while True:
            while not ended and len(coming) < ahead:
                try:
                    item = next(items)
                except StopIteration:
                    ended = True
                except Exception as error:
                    ended = True
                    failed: Future[Result] = Future()
                    failed.set_exception(error)
                    coming.append((None, failed))
                else:
                    coming.append((item, pool.submit(work, item)))
            if not coming:
                return
            first, result = coming.popleft()
            found = result.result()
            assert first is not None  # its result would have raised
            yield first, found
    finally:
        for _, waiting in coming:
            waiting.cancel()
