"""JSON schemas of the Reconciliation Service API 0.2, transcribed from its specification.

They are stricter than the protocol: fields that it does not name are not allowed.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_TEXT: Schema = {"type": "string", "minLength": 1}
_ADDRESS: Schema = {"type": "string", "pattern": "^https?://"}
_TEMPLATE: Schema = {"type": "string", "pattern": r"^https?://.*\{\{id\}\}"}
_NAMED = _object({"id": _TEXT, "name": _TEXT})
_PLACE = _object({"service_url": _ADDRESS, "service_path": {"type": "string", "pattern": "^/"}})

MANIFEST = _object(
    {
        "versions": {"type": "array", "items": _TEXT, "contains": {"const": "0.2"}},
        "name": _TEXT,
        "identifierSpace": _ADDRESS,
        "schemaSpace": _ADDRESS,
    },
    {
        "defaultTypes": {**_array(_NAMED), "uniqueItems": True},
        "serviceVersion": _TEXT,
        "batchSize": {"type": "integer", "minimum": 1},
        "view": _object({"url": _TEMPLATE}),
        "preview": _object({"url": _TEMPLATE, "width": {"type": "integer"}, "height": {"type": "integer"}}),
        "suggest": _object({}, {"entity": _PLACE, "type": _PLACE, "property": _PLACE}),
        "extend": _object(
            {}, {"propose_properties": _PLACE, "property_settings": _array({"type": "object"})}
        ),
        "authentication": _object({"type": {"const": "apiKey"}, "name": _TEXT, "in": {"const": "query"}}),
    },
)
_CANDIDATE = _object(
    {"id": _TEXT, "name": _TEXT, "score": {"type": "number"}},
    {
        "description": {"type": "string"},
        "type": _array(_NAMED),
        "match": {"type": "boolean"},
        "features": _array(_object({"id": _TEXT, "value": {"type": ["number", "boolean"]}})),
    },
)
RESULTS: Schema = {
    "type": "object",
    "additionalProperties": _object({"result": _array(_CANDIDATE)}),
}
SUGGESTED_CONCEPTS = _object(
    {
        "result": _array(
            _object({"id": _TEXT, "name": _TEXT}, {"description": _TEXT, "notable": _array(_NAMED)})
        )
    }
)
SUGGESTED = _object({"result": _array(_NAMED)})
PROPOSED = _object({"properties": _array(_NAMED), "type": {"type": "string"}}, {"limit": {"type": "integer"}})
EXTENDED = _object(
    {
        "meta": _array(_NAMED),
        "rows": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": _array(_object({"str": {"type": "string"}})),
            },
        },
    }
)
