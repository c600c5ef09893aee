# The public names for type checkers (SPEC 1: lazily loaded names); the table in __init__.py says where each is loaded from.
from vllm_mods.api.access import Access as Access
from vllm_mods.api.bench import BenchResult as BenchResult, bench as bench
from vllm_mods.api.build import BuildResult as BuildResult, build as build, lock as lock
from vllm_mods.api.image_verify import ImageVerified as ImageVerified, image_verify as image_verify
from vllm_mods.api.installed import status as status, verify as verify
from vllm_mods.api.libraries import open_library as open_library
from vllm_mods.api.matrix import bisect as bisect, matrix as matrix
from vllm_mods.api.new import new as new
from vllm_mods.api.on_base import ReadLock as ReadLock
from vllm_mods.api.plan import CheckResult as CheckResult, check as check, plan as plan
from vllm_mods.api.plugin_check import (
    PluginChecked as PluginChecked,
    PluginMatrix as PluginMatrix,
    plugin_check as plugin_check,
    plugin_matrix as plugin_matrix,
)
from vllm_mods.api.port import PortResult as PortResult, port as port
from vllm_mods.api.serve_check import ServeChecked as ServeChecked, serve_check as serve_check
from vllm_mods.api.suggest import Suggested as Suggested, suggest as suggest
from vllm_mods.api.sync import Synced as Synced, sync as sync
from vllm_mods.api.template_check import template_check as template_check
from vllm_mods.applying.carry_out import apply as apply, revert as revert
from vllm_mods.applying.outcomes import (
    Applied as Applied,
    Reverted as Reverted,
    Status as Status,
    Verified as Verified,
)
from vllm_mods.applying.shadow import Shadow as Shadow, shadow as shadow
from vllm_mods.base.errors import (
    DiffError as DiffError,
    ManifestError as ManifestError,
    NotRendered as NotRendered,
    NotRestored as NotRestored,
    Refused as Refused,
    TreeError as TreeError,
    Unreachable as Unreachable,
    UsageError as UsageError,
    VllmModsError as VllmModsError,
)
from vllm_mods.base.model import (
    FileChange as FileChange,
    Finding as Finding,
    Mod as Mod,
    ModPlan as ModPlan,
    Plan as Plan,
    Verdict as Verdict,
)
from vllm_mods.base.tree import Tree as Tree
from vllm_mods.formats.pairing import Pairing as Pairing
from vllm_mods.library.catalog import Library as Library
from vllm_mods.making.compose import NewMod as NewMod
from vllm_mods.matrices.bisect import BisectOutcome as BisectOutcome
from vllm_mods.matrices.cell import Cell as Cell, MatrixResult as MatrixResult
from vllm_mods.running.benched_start import BenchLoad as BenchLoad
from vllm_mods.running.recording import (
    Recorded as Recorded,
    begin_record as begin_record,
    read_record as read_record,
)
from vllm_mods.templates.check import TemplateChecked as TemplateChecked
from vllm_mods.trees.open import open_tree as open_tree

__version__: str
_HOMES: dict[str, str]
