"""The cold tier is where the settings say: a folder, or a bucket."""

from pathlib import Path

import pytest

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.cold.directory import DirectoryObjects
from turnstate.streams.clock import VirtualClock
from turnstate.streams.settings import Settings
from turnstate.streams.tiers.opening import cold_place, open_packs, policy_of


def test_it_is_a_folder_beside_the_store_unless_told_otherwise(tmp_path: Path) -> None:
    assert cold_place(Settings(data=tmp_path)) == str(tmp_path / "cold")
    other = Settings(data=tmp_path, cold=str(tmp_path / "elsewhere"))
    assert cold_place(other) == str(tmp_path / "elsewhere")


def test_a_relative_folder_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cold_place(Settings(data=Path("here"))) == str(tmp_path / "here" / "cold")
    assert cold_place(Settings(cold="there")) == str(tmp_path / "there")


def test_a_bucket_is_named_as_it_is() -> None:
    assert cold_place(Settings(cold="s3://bucket/a/b")) == "s3://bucket/a/b"


def test_packs_have_the_size_and_the_clock_that_were_set(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, cold_pack_bytes=123_456)
    packs = open_packs(settings, VirtualClock(77))
    assert (packs.pack_bytes, packs.clock()) == (123_456, 77)
    assert isinstance(packs.objects, DirectoryObjects)
    assert packs.manifests.latest().number == 0


def test_a_pack_larger_than_one_may_be_is_refused(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, cold_pack_bytes=1 << 30)
    with pytest.raises(InvalidInputError, match="out of range"):
        open_packs(settings, VirtualClock(1))


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    settings = Settings(data=tmp_path, cold=str(tmp_path / "file" / "cold"))
    with pytest.raises(UnavailableError):
        open_packs(settings, VirtualClock(1)).manifests.latest()


@pytest.mark.parametrize("place", ["s3://", "s3:///prefix"])
def test_a_bucket_without_a_name_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidInputError):
        open_packs(Settings(data=tmp_path, cold=place), VirtualClock(1))


def test_the_policy_is_that_of_the_settings() -> None:
    table = policy_of(Settings(active_s=7, cooling_s=70))
    assert (table.active_s, table.cooling_s) == (7, 70)
