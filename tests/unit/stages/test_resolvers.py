"""Our resolvers: typed, an empty variable is an unset one, and `2,3` stays `2,3`."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from services.stages.findings import Findings, Place
from services.stages.literal import Literals
from services.stages.yaml_tree import Node


def resolved(text: str, environ: Mapping[str, str]) -> tuple[object, list[str]]:
    """One value, and what was found wrong with it."""
    place, findings = Place(Path("x.yaml"), 1), Findings()
    value = Literals(Node({"x": Node(text, place)}, place), environ, findings).value(("x",))
    return value, [item.message for item in findings.items]


@pytest.mark.parametrize(
    ("text", "environ", "value"),
    [
        ("${env.int:AR_TP,1}", {}, 1),
        ("${env.int:AR_TP,1}", {"AR_TP": ""}, 1),
        ("${env.int:AR_TP,1}", {"AR_TP": "  "}, 1),
        ("${env.int:AR_TP,1}", {"AR_TP": "4"}, 4),
        ("${env.int:AR_TP,'1'}", {"AR_TP": " 4 "}, 4),
        ("${env.int:AR_TP}", {"AR_TP": "007"}, 7),
        ("${env.float:M,0.6}", {}, 0.6),
        ("${env.float:M,1}", {"M": ".5"}, 0.5),
        ("${env.float:M,1}", {"M": "1e-2"}, 0.01),
        ("${env.bool:B,false}", {}, False),
        ("${env.bool:B,false}", {"B": "Yes"}, True),
        ("${env.bool:B,true}", {"B": "0"}, False),
        ("${env.str:MODEL,zai-org/GLM-Image}", {}, "zai-org/GLM-Image"),
        ("${env.str:MODEL,x}", {"MODEL": "/models/a b"}, "/models/a b"),
        ("${env.str:MODEL,'${env.str:CACHE,.cache}/tiny'}", {"CACHE": "/c"}, "/c/tiny"),
        ("${env.str:N,7}", {}, "7"),
        ("${env.devices:G,'0,1'}", {}, "0,1"),
        ("${env.devices:G,0,1}", {}, "0,1"),
        ("${env.devices:G,0}", {}, "0"),
        ("${env.devices:G,'0'}", {"G": "2,3"}, "2,3"),
        ("${env.devices:G,'0'}", {"G": " 2, 3 "}, "2,3"),
        ("${env.devices:G,'0'}", {"G": ""}, "0"),
        ("${devices.first:3}", {}, "0,1,2"),
        ("${env.devices:G,${devices.first:${env.int:TP,1}}}", {"TP": "2"}, "0,1"),
    ],
)
def test_a_value(text: str, environ: Mapping[str, str], value: object) -> None:
    found, wrong = resolved(text, environ)
    assert wrong == []
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        ("${env.int:AR_TP,1}", {"AR_TP": "two"}, "AR_TP must be a whole number of 1 or more, got 'two'"),
        ("${env.int:AR_TP,1}", {"AR_TP": "0"}, "AR_TP must be a whole number of 1 or more, got '0'"),
        ("${env.int:AR_TP,1}", {"AR_TP": "-1"}, "got '-1'"),
        ("${env.int:AR_TP,1}", {"AR_TP": "1.0"}, "got '1.0'"),
        ("${env.int:AR_TP,1}", {"AR_TP": "1_0"}, "got '1_0'"),
        ("${env.int:AR_TP,1}", {"AR_TP": "٣"}, "AR_TP must be a whole number"),
        ("${env.int:AR_TP,1}", {"AR_TP": "9" * 40}, "AR_TP must be a whole number"),
        ("${env.int:AR_TP,1}", {"AR_TP": "1\n2"}, "AR_TP must be a whole number"),
        ("${env.int:AR_TP,one}", {}, "the default of AR_TP must be a whole number"),
        ("${env.int:AR_TP,1,2}", {}, "the default of AR_TP must be a whole number"),
        ("${env.int:AR_TP}", {}, "AR_TP is not set, and no default is written for it; set AR_TP"),
        ("${env.int:AR_TP}", {"AR_TP": ""}, "AR_TP is not set"),
        ("${env.int:7}", {}, "no name for an environment variable"),
        ("${env.float:M,1}", {"M": "nan"}, "M must be a number, got 'nan'"),
        ("${env.float:M,1}", {"M": "1e999"}, "M must be a number"),
        ("${env.bool:B,1}", {"B": "maybe"}, "B must be true or false, got 'maybe'"),
        ("${env.str:S,x}", {"S": "a\nb"}, "S must be text on one line"),
        ("${env.devices:G,0}", {"G": "a"}, "G must be device numbers with commas between, such as 0,1, got 'a'"),
        ("${env.devices:G,0}", {"G": "2,,3"}, "G must be device numbers"),
        ("${env.devices:G,0}", {"G": "-1"}, "G must be device numbers"),
        ("${env.devices:G,0}", {"G": "2,3,2"}, "G names a device twice"),
        ("${env.devices:G,0}", {"G": "1,01"}, "G names a device twice"),
        ("${devices.first:x}", {}, "the number of devices must be a whole number"),
        ("${devices.first:1000000000}", {}, "more than any node has"),
        ("${env.int:A,${env.int:B}}", {}, "B is not set"),
        ("${env.nothing:A}", {}, "cannot be resolved: Unsupported interpolation type env.nothing"),
        ("${env.int:AR_TP", {}, "not a valid interpolation"),
        ("${env.str:S,x}", {"S": "${oc.env:HOME}"}, "would be resolved once more"),
    ],
)
def test_a_typed_error_names_the_variable(text: str, environ: Mapping[str, str], says: str) -> None:
    value, wrong = resolved(text, environ)
    assert value is None
    assert len(wrong) == 1
    assert says in wrong[0]
    assert "\n" not in wrong[0]
