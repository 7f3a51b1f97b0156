"""Schemas for compare_schema.py: a list with instances, and a source of random ones."""


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required, **more}


def case(schema, valid=(), invalid=(), **more):
    return {"schema": schema, "valid": list(valid), "invalid": list(invalid), **more}


STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))

TREE = {"$defs": {"node": obj({"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}})},
        "$ref": "#/$defs/node"}
LINKED = {"type": "object", "properties": {"value": STRING, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
          "required": ["value", "next"], "additionalProperties": False}
UI = {"type": "object", "properties": {
    "type": {"type": "string", "enum": ["div", "button", "header", "section", "field", "form"]},
    "label": STRING, "children": {"type": "array", "items": {"$ref": "#"}},
    "attributes": {"type": "array", "items": {"$ref": "#/$defs/attribute"}}},
    "required": ["type", "label", "children", "attributes"], "additionalProperties": False,
    "$defs": {"attribute": obj({"name": STRING, "value": STRING})}}
SHAPES = {"oneOf": [obj({"kind": {"const": "circle"}, "radius": {"type": "number", "exclusiveMinimum": 0}}),
                    obj({"kind": {"const": "box"}, "width": NUMBER, "height": NUMBER}),
                    obj({"kind": {"const": "text"}, "text": {"type": "string", "minLength": 1}})]}

CASES = [
    # types
    case(STRING, ["", "a", "\"\\\n\t\u0007", "é漢😀"], [1, None, True, [], {}]),
    case(INTEGER, [0, 1, -1, 123456789012345678], [1.5, "1", None]),
    case(NUMBER, [0, -0.5, 1.25, 1e-07, 123456], ["1", None, True]),
    case(BOOLEAN, [True, False], [0, 1, "true", None]),
    case({"type": "null"}, [None], [0, False, ""]),
    case({"type": ["string", "null"]}, ["a", None], [1, False]),
    case({"type": ["integer", "boolean", "array"]}, [1, True, [1]], ["a", 1.5, {}]),
    case({"type": "string", "nullable": True}, ["a", None], [1], same_as={"type": ["string", "null"]}),
    case(True, [1, "a", None, {"a": [1]}, []]),
    case({}, [1, "a", None, {"a": [1]}, []]),
    case({"type": "object"}, [{}, {"a": 1, "b": {"c": [None]}}], [1, []]),
    case({"type": "array"}, [[], [1, "a", {}]], [{}, 1]),
    case({"description": "any", "title": "t", "default": 3, "examples": [1], "$comment": "c"}, [1, "x"]),
    # enum and const
    case({"enum": ["a", "b", 3, None, True, 1.5]}, ["a", "b", 3, None, True, 1.5], ["c", 4, False, "3"]),
    case({"const": {"a": [1, {"b": None}], "c": "d"}}, [{"a": [1, {"b": None}], "c": "d"}], [{"a": []}, {}]),
    case({"enum": [[], [1], {}, {"x": []}]}, [[], [1], {}, {"x": []}], [[2], {"y": []}]),
    case({"type": "string", "enum": ["a", 1, "bb"]}, ["a", "bb"], [1]),
    case({"enum": ["a", "abc", "abcdef"], "minLength": 2}, ["abc", "abcdef"], ["a"]),
    case({"enum": [1, 5, 10, 20], "minimum": 5, "maximum": 10}, [5, 10], [1, 20]),
    case({"enum": ["x1", "y2", "z"], "pattern": "\\d$"}, ["x1", "y2"], ["z"]),
    case({"const": "quote \" and \\ and \n"}, ["quote \" and \\ and \n"], ["quote"]),
    case({"enum": [f"value{i}" for i in range(1000)]}, ["value0", "value999"], ["value1000"]),
    case({"type": "integer", "enum": ["a"]}, status="unsupported"),
    # strings
    case({"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "abcd", "é漢😀"], ["a", "abcde"]),
    case({"type": "string", "maxLength": 0}, [""], ["a"]),
    case({"type": "string", "minLength": 100}, ["a" * 100], ["a" * 99]),
    case({"type": "string", "maxLength": 4000}, ["", "a" * 4000], ["a" * 4001]),
    case({"type": "string", "minLength": 3, "maxLength": 2}, status="unsupported"),
    case({"type": "string", "pattern": "^[a-z]+$"}, ["abc"], ["", "A", "a1"]),
    case({"type": "string", "pattern": "b+"}, ["abc", "b"], ["", "ac"]),
    case({"type": "string", "pattern": "^a|b$"}, ["a", "axx", "xb"], ["x", "ba"]),
    case({"type": "string", "pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"}, ["555-1212", "(888)555-1212"],
         ["(888)555-1212 ext. 532", "(800)FLOWERS"]),
    case({"type": "string", "pattern": "^\\w+\\s\\S+$"}, ["ab cd"], ["ab", "ab "]),
    case({"type": "string", "pattern": "^[^\"\\\\]{1,3}$"}, ["abc", "é"], ["\"", "a\\", ""]),
    case({"type": "string", "pattern": "^\\u0041\\x42\\u{43}$"}, ["ABC"], ["abc"]),
    case({"type": "string", "pattern": "^[\\u4e00-\\u9fff]{2,}$"}, ["漢字"], ["漢", "ab"]),
    case({"type": "string", "pattern": "^[^<>]*$"}, ["", "abc é漢😀 \u2028"], ["<", "a>b"]),
    case({"type": "string", "pattern": "^[^/]*$", "minLength": 2, "maxLength": 40}, ["ab", "\\\"" * 20], ["a", "a/b", "a" * 41]),
    case({"type": "string", "pattern": "^[ -~]+$"}, ["a b", "~!"], ["", "é"]),
    case({"type": "string", "pattern": "^.{3}$"}, ["abc", "é漢😀"], ["ab", "a\nb"]),
    case({"type": "string", "pattern": "^(a|b)*?c{2,3}?$"}, ["abcc", "ccc"], ["abc"]),
    case({"type": "string", "pattern": "^$"}, [""], ["a"]),
    case({"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 5}, ["abc", "abcde"],
         ["ab", "abcdef", "ABC"]),
    case({"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 3}, status="unsupported"),
    case({"type": "string", "pattern": "(?=a)b"}, unsupported=["pattern"]),
    case({"type": "string", "pattern": "(a)\\1"}, unsupported=["pattern"]),
    case({"type": "string", "pattern": "(a"}, status="malformed"),
    case({"type": "string", "pattern": "[b-a]"}, status="malformed"),
    case({"type": "string", "pattern": "*a"}, status="malformed"),
    case({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}, status="unsupported"),
    case({"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "x"]),
    case({"type": "string", "format": "time"}, ["12:30:00Z", "23:59:59.5+01:00"], ["24:00:00Z", "12:30"]),
    case({"type": "string", "format": "date-time"}, ["2024-02-29T12:30:00Z"], ["2023-02-29T12:30:00Z", "2024"]),
    case({"type": "string", "format": "email"}, ["a.b@example.com"], ["a@", "@b", "ab"]),
    case({"type": "string", "format": "uuid"}, ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08"]),
    case({"type": "string", "format": "ipv4"}, ["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    case({"type": "string", "format": "ipv6"}, ["::1", "2001:db8::8a2e:370:7334", "::"], [":::", "12345::", "1:2"]),
    case({"type": "string", "format": "hostname"}, ["www.example.com"], ["-a.com", "a..b"]),
    case({"type": "string", "format": "uri"}, ["https://example.com/a?b=c#d"], ["/relative", "a b"]),
    case({"type": "string", "format": "duration"}, ["P1D", "PT5M", "P4Y"], ["P", "1D", "PT"]),
    case({"type": "string", "format": "json-pointer"}, ["", "/a/b~0"], ["a", "/~"]),
    case({"type": "string", "format": "something-else"}, ["x"]),
    # numbers
    case({"type": "integer", "minimum": 0, "maximum": 150}, [0, 99, 150], [-1, 151, 1500]),
    case({"type": "integer", "minimum": -20, "maximum": -3}, [-20, -3, -10], [-21, -2, 0, 3]),
    case({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12}, [10, 11], [9, 12, 100]),
    case({"type": "integer", "minimum": 1000000}, [1000000, 99999999], [999999]),
    case({"type": "integer", "multipleOf": 7}, [0, 7, -14, 700], [1, 8]),
    case({"type": "integer", "multipleOf": 5, "minimum": 11, "maximum": 24}, [15, 20], [10, 11, 25]),
    case({"type": "integer", "minimum": 5, "maximum": 4}, status="unsupported"),
    case({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.001], [-0.1, 1.1, 1.01]),
    case({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, [-1.5, 2.2, 0, -0.7], [-1.6, 2.25, 2.3]),
    case({"type": "number", "exclusiveMinimum": 0}, [0.1, 5, 1e9], [0, -1]),
    case({"type": "number", "minimum": 99.95}, [99.95, 100, 99.96], [99.94, 9]),
    case({"type": "number", "multipleOf": 3}, [3, 0, -9], [1, 3.5]),
    case({"type": "number", "multipleOf": 0.01}, unsupported=["multipleOf"]),
    case({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}, [0, 9223372036854775807]),
    case({"type": "number", "minimum": 5e-324, "maximum": 1e300}, [0.5, 7], [0, -1]),
    # arrays
    case({"type": "array", "items": INTEGER}, [[], [1, 2, 3]], [["a"], [1.5]]),
    case({"type": "array", "items": STRING, "minItems": 2, "maxItems": 3}, [["a", "b"], ["a", "b", "c"]],
         [["a"], ["a", "b", "c", "d"]]),
    case({"type": "array", "prefixItems": [INTEGER, STRING], "items": False}, [[], [1], [1, "a"]], [["a"], [1, "a", 2]]),
    case({"type": "array", "prefixItems": [INTEGER, STRING], "items": BOOLEAN, "minItems": 3}, [[1, "a", True]],
         [[1, "a"], [1, "a", 3]]),
    case({"type": "array", "items": [INTEGER, STRING], "additionalItems": False}, [[1, "a"]], [[1, "a", 2]]),
    case({"type": "array", "items": False}, [[]], [[1]]),
    case({"type": "array", "items": False, "minItems": 1}, status="unsupported"),
    case({"type": "array", "items": {"type": "array", "items": {"type": "array", "items": NUMBER}}}, [[[[1.5]]]], [[[1]]]),
    case({"type": "array", "uniqueItems": True}, unsupported=["uniqueItems"]),
    case({"type": "array", "contains": INTEGER, "maxItems": 4}, [[1], [1, "a"]], [[], ["a"]]),  # what is contained comes first
    case({"type": "array", "items": INTEGER, "contains": {"minimum": 5}, "minContains": 2, "maxItems": 5}, [[5, 6], [7, 8, 1]], [[5], [], [1, 1]]),
    case({"allOf": [{"type": "array", "contains": {"const": 1}}, {"contains": {"const": 2}, "maxItems": 3}]}, [[1, 2]], [[1], [1, 1]]),
    case({"type": "array", "contains": INTEGER, "minContains": 0, "maxItems": 2}, [[], ["a"]], [3]),
    case({"type": "string", "contains": INTEGER}, ["a"], [1]),
    case({"type": "array", "items": STRING, "contains": INTEGER}, status="unsupported"),
    case({"type": "array", "prefixItems": [STRING], "unevaluatedItems": False}, [["a"], []], [["a", 1]]),
    case({"enum": [["a"], ["a", 1]], "prefixItems": [STRING], "unevaluatedItems": STRING}, [["a"]], [["a", 1]]),
    case({"type": "array", "prefixItems": [STRING], "anyOf": [{"items": INTEGER}, True], "unevaluatedItems": False}, unsupported=["unevaluatedItems"]),
    case({"type": "array", "contains": INTEGER, "maxContains": 2}, unsupported=["contains"]),
    case({"type": "array", "prefixItems": [STRING], "contains": INTEGER}, unsupported=["contains"]),
    case({"type": "array", "maxItems": 1000, "items": BOOLEAN}, [[True] * 1000], [[True] * 1001]),
    # objects
    case(obj({"name": STRING, "age": INTEGER}), [{"name": "a", "age": 1}], [{"name": "a"}, {"name": "a", "age": 1, "x": 2}]),
    case(obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, ["b"]), [{"b": 1}, {"a": 1, "b": 2}, {"b": 1, "c": 2},
         {"a": 1, "b": 2, "c": 3}], [{}, {"a": 1}, {"a": 1, "c": 3}]),
    case(obj({"a": INTEGER, "ab": STRING, "abc": BOOLEAN}, []), [{}, {"a": 1}, {"ab": "x"}, {"a": 1, "abc": True}],
         [{"ab": 1}, {"abcd": 1}]),
    case({"type": "object", "properties": {"a": INTEGER}}, [{}, {"a": 1}], [{"a": "x"}]),
    case({"type": "object", "properties": {"a": INTEGER}, "additionalProperties": True}, [{"a": 1, "b": [1]}, {"zz": 1}],
         [{"a": "x"}]),
    case({"type": "object", "properties": {"a": INTEGER, "abc": INTEGER}, "additionalProperties": STRING},
         [{"a": 1, "b": "x"}, {"ab": "x"}, {"abcd": "y"}], [{"ab": 1}, {"b": 1}]),
    case({"type": "object", "additionalProperties": INTEGER}, [{}, {"x": 1, "y": 2}], [{"x": "a"}]),
    case({"type": "object", "required": ["a", "b"]}, [{"a": 1, "b": "x"}], [{"a": 1}]),
    case({"type": "object", "properties": {"a": False, "b": INTEGER}}, [{"b": 1}, {}], [{"a": 1}]),
    case({"type": "object", "properties": {"a": False}, "required": ["a"]}, status="unsupported"),
    case({"type": "object", "patternProperties": {"^x_": INTEGER, "_y$": {"minimum": 5}}, "additionalProperties": False},
         [{}, {"x_a": 1}, {"a_y": "t"}, {"x__y": 7}], [{"b": 1}, {"x_a": "s"}, {"x__y": 4}]),
    case({"type": "object", "properties": {"x_1": STRING}, "patternProperties": {"^x_": {"minLength": 2}}},
         [{"x_1": "ab"}, {"x_2": "ab"}], [{"x_1": "a"}, {"x_1": 1}]),
    case({"type": "object", "propertyNames": {"pattern": "^[a-z]{2}$"}, "additionalProperties": INTEGER},
         [{"ab": 1}], [{"abc": 1}, {"AB": 1}]),
    case({"type": "object", "minProperties": 1, "additionalProperties": INTEGER}, [{"a": 1}], [{}]),
    case({"type": "object", "minProperties": 2, "additionalProperties": INTEGER}, unsupported=["minProperties"]),
    case({"type": "object", "maxProperties": 2, "additionalProperties": INTEGER}, [{}, {"a": 1, "b": 2}],
         [{"a": 1, "b": 2, "c": 3}]),
    case(obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, [], minProperties=2), [{"a": 1, "b": 2}, {"b": 1, "c": 2}],
         [{}, {"c": 1}]),
    case(obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, ["c"], maxProperties=2), [{"a": 1, "c": 2}, {"c": 2}],
         [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}]),
    case(obj({"a\"b": INTEGER, "c\\d": INTEGER, "é": INTEGER, "": INTEGER}), [{"a\"b": 1, "c\\d": 2, "é": 3, "": 4}]),
    case({"type": "object", "dependentRequired": {"a": ["b"]}, "properties": {"a": INTEGER, "b": INTEGER}},
         [{}, {"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
    case({"type": "object", "properties": {"a": INTEGER, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": STRING}}}},
         [{}, {"b": 1}, {"a": 1, "b": "x"}], [{"a": 1, "b": 2}]),
    # combinations
    case({"anyOf": [STRING, INTEGER]}, ["a", 1], [1.5, None]),
    case({"anyOf": [obj({"a": INTEGER}), obj({"a": STRING, "b": INTEGER})]}, [{"a": 1}, {"a": "x", "b": 1}],
         [{"a": "x"}, {"a": 1, "b": 1}]),
    case({"allOf": [{"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
                    {"properties": {"b": STRING}, "required": ["b"]}]}, [{"a": 1, "b": "x"}], [{"a": 1}, {"b": "x"}]),
    case({"allOf": [{"minimum": 3}, {"maximum": 5}], "type": "integer"}, [3, 5], [2, 6]),
    case({"allOf": [{"anyOf": [STRING, INTEGER]}, {"anyOf": [INTEGER, BOOLEAN]}]}, [1], ["a", True]),
    case({"allOf": [STRING, INTEGER]}, status="unsupported"),
    case({"type": "object", "properties": {"a": INTEGER}, "anyOf": [{"required": ["a"]}, {"properties": {"b": STRING},
          "required": ["b"]}]}, [{"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}], [{}, {"a": "x"}]),
    case(SHAPES, [{"kind": "circle", "radius": 1.5}, {"kind": "text", "text": "a"}],
         [{"kind": "circle", "radius": 0}, {"kind": "box", "radius": 1}]),
    case({"oneOf": [STRING, {"type": "null"}]}, ["a", None], [1]),
    case({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}]}, ["a", "c"], ["d"]),
    case({"oneOf": [obj({"a": INTEGER}), obj({"b": INTEGER})]}, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
    case({"oneOf": [{"minimum": 2}, {"type": "integer"}]}, unsupported=["oneOf"]),
    case({"not": {"type": "string"}}, [1, None, {}], ["a"]),
    case({"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
    case({"not": {"const": 3}, "type": ["integer", "string"]}, [2, 30, "3", "a"], [3]),
    case({"not": {"enum": ["a", "ab", None, True, 1.5]}}, ["", "b", "abc", False, 1.25, 15, {}, []],
         ["a", "ab", None, True, 1.5]),
    case({"type": "string", "not": {"const": "root"}, "pattern": "^[a-z]+$"}, ["roo", "roots", "x"], ["root", "A"]),
    case({"not": {"const": [1]}}, unsupported=["not"]),
    case({"not": {"minimum": 3}}, unsupported=["not"]),
    case({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "integer"}}, ["ab", 1], ["a", None]),
    case({"if": {"minimum": 3}, "then": {"maximum": 5}}, unsupported=["if"]),
    case({"type": "object", "properties": {"country": {"type": "string", "enum": ["US", "NL", "DE"]}, "code": STRING},
          "required": ["country", "code"], "additionalProperties": False,
          "if": {"properties": {"country": {"const": "US"}}, "required": ["country"]},
          "then": {"properties": {"code": {"pattern": "^\\d{5}$"}}},
          "else": {"properties": {"code": {"pattern": "^[A-Z]{2}$"}}}},
         [{"country": "US", "code": "12345"}, {"country": "NL", "code": "AB"}],
         [{"country": "US", "code": "AB"}, {"country": "DE", "code": "12345"}]),
    case({"type": "object", "properties": {"a": {}, "b": {}}, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
         [{}, {"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
    case({"const": {"a": "x"}, "properties": {"a": {"not": {"type": "string"}}}}, status="unsupported"),
    case({"enum": [[1, 1], [1, 2], [3]], "uniqueItems": True, "contains": {"const": 1}},
         unsupported=["uniqueItems"], valid=[[1, 2]], invalid=[[1, 1], [3]]),
    case({"type": "object", "properties": {"a": INTEGER}, "allOf": [{"properties": {"b": STRING}}],
          "unevaluatedProperties": False}, [{"a": 1, "b": "x"}, {}], [{"c": 1}]),
    # references
    case(TREE, [{"value": 1, "children": [{"value": 2, "children": []}]}], [{"value": 1}, {"value": 1, "children": [1]}]),
    case(LINKED, [{"value": "a", "next": {"value": "b", "next": None}}], [{"value": "a"}]),
    case(UI, [{"type": "div", "label": "", "children": [], "attributes": [{"name": "a", "value": "b"}]}], [{}]),
    case({"$defs": {"a/b": INTEGER, "c~d": STRING, "e%f": BOOLEAN}, "prefixItems": [{"$ref": "#/$defs/a~1b"},
          {"$ref": "#/$defs/c~0d"}, {"$ref": "#/$defs/e%25f"}], "type": "array", "items": False}, [[1, "a", True]], [["a"]]),
    case({"$ref": "#/$defs/a", "$defs": {"a": {"$anchor": "x", "type": "integer"}}, "minimum": 3}, [3], [2]),
    case({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "integer"}}}, [3], ["a"]),
    case({"$ref": "#"}, status="malformed"),
    case({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
         status="malformed"),
    case({"$ref": "#/nowhere"}, status="malformed"),
    case({"$ref": "https://example.com/schema"}, status="unsupported"),
    case({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, status="unsupported"),
    # wrong schemas
    case(False, status="unsupported"),
    case({"type": "strnig"}, status="malformed"),
    case({"type": 3}, status="malformed"),
    case({"type": []}, status="malformed"),
    case({"minLength": -1}, status="malformed"),
    case({"minLength": "a"}, status="malformed"),
    case({"properties": []}, status="malformed"),
    case({"required": "a"}, status="malformed"),
    case({"anyOf": []}, status="malformed"),
    case({"items": 3}, status="malformed"),
    case({"multipleOf": 0}, status="malformed"),
    case({"enum": 3}, status="malformed"),
    case({"pattern": 1}, status="malformed"),
    # as clients send them
    case(obj({"location": STRING, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, ["location"]),
         [{"location": "Tokyo"}, {"location": "", "unit": "celsius"}], [{"unit": "celsius"}]),
    case(obj({"steps": {"type": "array", "items": obj({"explanation": STRING, "output": STRING})}, "final_answer": STRING}),
         [{"steps": [{"explanation": "a", "output": "b"}], "final_answer": "c"}], [{"steps": []}]),
    case({"$defs": {"Event": {"properties": {"name": {"title": "Name", "type": "string"}, "date": {"format": "date",
          "type": "string"}, "people": {"items": {"type": "string"}, "type": "array"}, "price": {"anyOf":
          [{"type": "number", "minimum": 0}, {"type": "null"}], "default": None}}, "required": ["name", "date", "people"],
          "title": "Event", "type": "object"}}, "properties": {"events": {"items": {"$ref": "#/$defs/Event"},
          "type": "array", "maxItems": 5}}, "required": ["events"], "type": "object"},
         [{"events": [{"name": "a", "date": "2024-01-31", "people": ["x"], "price": 3.5}]}], [{}]),
]


def random_schema(rng, depth=0):
    """A schema that some value satisfies, most of the time."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "format", "pattern"]
    if depth < 3:
        kinds += ["array", "tuple", "object", "object", "open", "map", "any_of", "all_of", "types"]
    kind = rng.choice(kinds)
    inner = lambda: random_schema(rng, depth + 1)  # noqa: E731
    if kind == "string":
        schema = {"type": "string"}
        if rng.random() < 0.5:
            schema["minLength"] = rng.randint(0, 6)
        if rng.random() < 0.5:
            schema["maxLength"] = schema.get("minLength", 0) + rng.choice([0, 1, 5, 40, 300])
        return schema
    if kind in ("integer", "number"):
        schema = {"type": kind}
        low = rng.randint(-1000, 1000) if kind == "integer" or rng.random() < 0.5 else round(rng.uniform(-50, 50), 3)
        if rng.random() < 0.5:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.5:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 9, 100, 12345])
        if kind == "integer" and rng.random() < 0.3:
            schema["multipleOf"] = rng.randint(1, 12)
        return schema
    if kind == "boolean" or kind == "null":
        return {"type": kind}
    if kind == "enum":
        return {"enum": rng.sample(["a", "ab", "b", 1, 2.5, None, True, [], [1, "x"], {"k": 1}, "é", "\"", -3], rng.randint(1, 6))}
    if kind == "format":
        return {"type": "string", "format": rng.choice(["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6",
                                                          "hostname", "duration", "uri", "json-pointer"])}
    if kind == "pattern":
        schema = {"type": "string", "pattern": rng.choice([
            "^[a-z]+$", "[0-9]", "^(foo|bar)-\\d{2,4}$", "\\s", "^\\S+@\\S+$", "^[^a-z]*$", "^.{0,20}$", "a.*b",
            "^([A-Z][a-z]*)( [A-Z][a-z]*)*$", "^\\W*$", "\\D{3}", "^(?:a|bc|[d-f])+?$", "^#[0-9a-fA-F]{6}$", "x|^y|z$",
            "^[^<>]*$", "^[ -~]*$", "^[^\\u2019]+$", "^.*$", "^[^/]{2,30}$"])}
        if rng.random() < 0.3:
            schema["maxLength"] = rng.randint(10, 60)
        return schema
    if kind == "array":
        schema = {"type": "array", "items": inner()}
        if rng.random() < 0.5:
            schema["minItems"] = rng.randint(0, 3)
        if rng.random() < 0.5:
            schema["maxItems"] = schema.get("minItems", 0) + rng.randint(0, 4)
        return schema
    if kind == "tuple":
        return {"type": "array", "prefixItems": [inner() for _ in range(rng.randint(1, 3))],
                "items": rng.choice([False, True, {"type": "integer"}]), "minItems": rng.randint(0, 1)}
    names = rng.sample(["a", "b", "ab", "name", "na\"me", "id", "x_1", "x_2", "é", "value", "val"], rng.randint(0, 5))
    if kind in ("object", "open"):
        schema = {"type": "object", "properties": {n: inner() for n in names},
                  "required": [n for n in names if rng.random() < 0.6]}
        if kind == "open":
            schema["additionalProperties"] = rng.choice([True, inner()])
            if rng.random() < 0.5:
                schema["patternProperties"] = {rng.choice(["^x_", "e$", "[0-9]"]): inner()}
        elif rng.random() < 0.7:
            schema["additionalProperties"] = False
        if rng.random() < 0.2:
            schema["maxProperties"] = len(schema["required"]) + rng.randint(0, 2)
        if rng.random() < 0.2 and kind == "object":
            schema["minProperties"] = rng.randint(0, len(names))
        return schema
    if kind == "map":
        schema = {"type": "object", "additionalProperties": inner()}
        if rng.random() < 0.3:
            schema["propertyNames"] = {"pattern": "^[a-z]{1,8}$"}
        return schema
    if kind == "any_of":
        return {"anyOf": [inner() for _ in range(rng.randint(1, 3))]}
    if kind == "all_of":
        return {"allOf": [{"type": "object", "properties": {n: inner()}, "required": [n]} for n in names[:2] or ["q"]]}
    return {"type": rng.sample(["string", "integer", "null", "boolean", "array", "object"], 2)}
