"""Stringified error objects as real writers make them (node 20, Python 3.11), generated once and
kept as texts.
"""

from __future__ import annotations

from typing import NamedTuple


class Written(NamedTuple):
    """One text, the cuid it names, and codes that must be among its reasons."""

    writer: str
    text: str
    cuid: str | None
    codes: tuple[str, ...]


TEXTS = (
    Written(
        "node: JSON.stringify nested",
        '{"cuid":"B-000123","errors":{"address":{"_errors":[{"property":"postal_code",'
        '"name":"ValidationError","message":"is not a valid postal code"}]}}}',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: JSON.stringify indented",
        '{\n  "cuid": "B-000123",\n  "errors": {\n    "address": {\n      "_errors": [\n        {'
        '\n          "property": "postal_code",\n          "name": "ValidationError",\n          '
        '"message": "is not a valid postal code"\n        }\n      ]\n    }\n  }\n}',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: JSON.stringify objects",
        '{"cuid":"B-000123","errors":[{"name":"RequiredError","message":"can\'t be blank",'
        '"property":"address1"},{"name":"ValidationError","message":"is invalid",'
        '"property":"pan"}]}',
        "B-000123",
        ("address.address1.missing", "card.pan.format"),
    ),
    Written(
        "node: JSON.stringify calls",
        '{"cuid":"B-000123","_errors":[{"call":"create_card","id":null,"index":0,'
        '"name":"ValidationError","message":"card number 4111 1111 1111 1111 is not valid",'
        '"entity_name":"card","property_name":"pan"}]}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: JSON.stringify strings",
        '{"cuid":"B-000123","errors":["postal_code is required","city is required"]}',
        "B-000123",
        ("address.postal_code.missing", "address.city.missing"),
    ),
    Written(
        "node: JSON.stringify deep",
        '{"status":422,"body":{"cardholder":{"cuid":"B-000123","cards":[{"address":{"_errors":{'
        '"postal_code":["is required"],"city":["is too long (maximum is 40 characters)"]}}}]}}}',
        "B-000123",
        ("address.postal_code.missing", "address.city.length"),
    ),
    Written(
        "node: JSON in JSON",
        '"{\\"cuid\\":\\"B-000123\\",\\"errors\\":{\\"address\\":{\\"_errors\\":[{'
        '\\"property\\":\\"postal_code\\",\\"name\\":\\"ValidationError\\",\\"message\\":\\"is '
        'not a valid postal code\\"}]}}}"',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: JSON in JSON in JSON",
        '"\\"{\\\\\\"cuid\\\\\\":\\\\\\"B-000123\\\\\\",\\\\\\"errors\\\\\\":[{'
        '\\\\\\"name\\\\\\":\\\\\\"RequiredError\\\\\\",\\\\\\"message\\\\\\":\\\\\\"can\'t be '
        'blank\\\\\\",\\\\\\"property\\\\\\":\\\\\\"address1\\\\\\"},{'
        '\\\\\\"name\\\\\\":\\\\\\"ValidationError\\\\\\",\\\\\\"message\\\\\\":\\\\\\"is '
        'invalid\\\\\\",\\\\\\"property\\\\\\":\\\\\\"pan\\\\\\"}]}\\""',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: JSON below a key",
        '{"error":"{\\"cuid\\":\\"B-000123\\",\\"errors\\":{\\"address\\":{\\"_errors\\":[{'
        '\\"property\\":\\"postal_code\\",\\"name\\":\\"ValidationError\\",\\"message\\":\\"is '
        'not a valid postal code\\"}]}}}"}',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: message holds JSON",
        '{"message":"{\\"cuid\\":\\"B-000123\\",\\"errors\\":[{\\"name\\":\\"RequiredError\\",'
        '\\"message\\":\\"can\'t be blank\\",\\"property\\":\\"address1\\"},{'
        '\\"name\\":\\"ValidationError\\",\\"message\\":\\"is invalid\\",'
        '\\"property\\":\\"pan\\"}]}","statusCode":422}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: escaped quotes",
        '{\\"cuid\\":\\"B-000123\\",\\"errors\\":[{\\"name\\":\\"RequiredError\\",'
        '\\"message\\":\\"can\'t be blank\\",\\"property\\":\\"address1\\"},{'
        '\\"name\\":\\"ValidationError\\",\\"message\\":\\"is invalid\\",'
        '\\"property\\":\\"pan\\"}]}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: doubled quotes",
        '{""cuid"":""B-000123"",""errors"":[{""name"":""RequiredError"",""message"":""can\'t be '
        'blank"",""property"":""address1""},{""name"":""ValidationError"",""message"":""is '
        'invalid"",""property"":""pan""}]}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: quoted and doubled",
        '"{""cuid"":""B-000123"",""errors"":[{""name"":""RequiredError"",""message"":""can\'t be '
        'blank"",""property"":""address1""},{""name"":""ValidationError"",""message"":""is '
        'invalid"",""property"":""pan""}]}"',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: HTML escaped",
        "{&quot;cuid&quot;:&quot;B-000123&quot;,&quot;errors&quot;:[{"
        "&quot;name&quot;:&quot;RequiredError&quot;,&quot;message&quot;:&quot;can&#39;t be "
        "blank&quot;,&quot;property&quot;:&quot;address1&quot;},{"
        "&quot;name&quot;:&quot;ValidationError&quot;,&quot;message&quot;:&quot;is invalid&quot;,"
        "&quot;property&quot;:&quot;pan&quot;}]}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: HTML escaped twice",
        "{&amp;quot;cuid&amp;quot;:&amp;quot;B-000123&amp;quot;,&amp;quot;errors&amp;quot;:[{"
        "&amp;quot;name&amp;quot;:&amp;quot;RequiredError&amp;quot;,"
        "&amp;quot;message&amp;quot;:&amp;quot;can't be blank&amp;quot;,"
        "&amp;quot;property&amp;quot;:&amp;quot;address1&amp;quot;},{"
        "&amp;quot;name&amp;quot;:&amp;quot;ValidationError&amp;quot;,"
        "&amp;quot;message&amp;quot;:&amp;quot;is invalid&amp;quot;,"
        "&amp;quot;property&amp;quot;:&amp;quot;pan&amp;quot;}]}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: util.inspect",
        "{ cuid: 'B-000123', errors: { address: { _errors: [Array] } } }",
        "B-000123",
        (),
    ),
    Written(
        "node: util.inspect full",
        "{\n  cuid: 'B-000123',\n  errors: {\n    address: {\n      _errors: [\n        {\n      "
        "    property: 'postal_code',\n          name: 'ValidationError',\n          message: "
        "'is not a valid postal code'\n        }\n      ]\n    }\n  }\n}",
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: util.inspect one line",
        "{ cuid: 'B-000123', errors: [ { name: 'RequiredError', message: \"can't be blank\", "
        "property: 'address1' }, { name: 'ValidationError', message: 'is invalid', property: "
        "'pan' } ] }",
        "B-000123",
        ("address.address1.missing", "card.pan.format"),
    ),
    Written(
        "node: util.inspect strings",
        "{\n  cuid: 'B-000123',\n  errors: [ 'postal_code is required', 'city is required' ]\n}",
        "B-000123",
        ("address.postal_code.missing",),
    ),
    Written(
        "node: util.inspect calls",
        "{\n  cuid: 'B-000123',\n  _errors: [\n    {\n      call: 'create_card',\n      id: null,"
        "\n      index: 0,\n      name: 'ValidationError',\n      message: 'card number 4111 "
        "1111 1111 1111 is not valid',\n      entity_name: 'card',\n      property_name: 'pan'\n "
        "   }\n  ]\n}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: util.inspect shallow", "{ status: 422, body: { cardholder: [Object] } }", None, ()
    ),
    Written(
        "node: util.inspect error",
        "CardError: card has expired\n    at create (/srv/portal/card.js:12:7) {\n  cuid: "
        "'B-000123',\n  property: 'expiration'\n}",
        "B-000123",
        ("card.expiration.expired",),
    ),
    Written(
        "node: util.inspect long",
        "{\n  cuid: 'B-000123',\n  errors: [\n    {\n      name: 'ValidationError',\n      "
        "message: 'The postal code that was given does not match the state of the address, "
        "please correct it and try the upload once more',\n      property: 'postal_code'\n    }\n"
        "  ]\n}",
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: util.inspect class",
        "PortalFault {\n  cuid: 'B-000123',\n  errors: [\n    {\n      name: 'RequiredError',\n  "
        "    message: \"can't be blank\",\n      property: 'address1'\n    },\n    { name: "
        "'ValidationError', message: 'is invalid', property: 'pan' }\n  ]\n}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: util.inspect circular",
        "<ref *1> {\n  cuid: 'B-000123',\n  errors: [ 'city is required' ],\n  self: [Circular "
        "*1]\n}",
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "node: util.inspect map",
        "Map(2) { 'cuid' => 'B-000123', 'errors' => [ 'city is required' ] }",
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "node: util.format",
        "Could not create cardholder B-000123: [ 'city is required', [length]: 1 ]",
        "B-000123",
        ("address.city.missing",),
    ),
    Written("node: String(object)", "[object Object]", None, ("partner.error.unreadable",)),
    Written(
        "node: String(array of objects)",
        "[object Object],[object Object]",
        None,
        ("partner.error.unreadable",),
    ),
    Written("node: JSON.stringify(new Error)", "{}", None, ("partner.error.unreadable",)),
    Written(
        "node: String(error)",
        "CardError: postal_code is required for cuid B-000123",
        "B-000123",
        ("address.postal_code.missing",),
    ),
    Written(
        "node: words around JSON",
        'Error: cardholder not created {"cuid":"B-000123","errors":[{"name":"RequiredError",'
        '"message":"can\'t be blank","property":"address1"},{"name":"ValidationError",'
        '"message":"is invalid","property":"pan"}]} (request 7f)',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: cut in a message",
        '{"cuid":"B-000123","errors":[{"name":"RequiredError","message":"can\'t be blank",'
        '"property"',
        "B-000123",
        ("partner.error.missing",),
    ),
    Written("node: cut after the cuid", '{"cuid":"B-000123",', "B-000123", ()),
    Written(
        "node: cut escaped",
        '"{\\"cuid\\":\\"B-000123\\",\\"errors\\":[{\\"name\\":\\"RequiredError\\",'
        '\\"message\\":\\"can\'t be blank\\",\\"pro',
        "B-000123",
        ("partner.error.missing",),
    ),
    Written(
        "node: cut inspect",
        "{\n  cuid: 'B-000123',\n  errors: [\n    {\n      name: 'RequiredError',\n      messa",
        "B-000123",
        (),
    ),
    Written("node: querystring", "cuid=B-000123&message=is+invalid&property=pan", "B-000123", ()),
    Written(
        "node: zod tree",
        '{"cuid":"B-000123","_errors":[],"address":{"_errors":[],"postal_code":{"_errors":['
        '"Required"]}}}',
        "B-000123",
        ("address.postal_code.missing",),
    ),
    Written(
        "node: joi",
        '{"cuid":"B-000123","details":[{"message":"\\"pan\\" is required","path":["card","pan"],'
        '"type":"any.required"}]}',
        "B-000123",
        ("card.pan.missing",),
    ),
    Written(
        "node: ajv",
        '{"cuid":"B-000123","errors":[{"instancePath":"/address/postal_code","keyword":"pattern",'
        '"message":"must match pattern","params":{"pattern":"^x"}}]}',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: mongoose",
        '{"cuid":"B-000123","errors":{"pan":{"name":"ValidatorError","message":"Path `pan` is '
        'invalid (5555555555554444).","path":"pan","value":"5555555555554444"}},'
        '"_message":"validation failed"}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "node: rails",
        '{"cuid":"B-000123","errors":{"postal_code":["can\'t be blank"],"pan":["has already been '
        'taken"]}}',
        "B-000123",
        ("address.postal_code.missing", "card.pan.exists"),
    ),
    Written(
        "node: property texts",
        '{"cuid":"B-000123","postal_code":"is required"}',
        "B-000123",
        ("address.postal_code.missing",),
    ),
    Written(
        "node: list first",
        '["B-000123",{"cuid":"B-000123","errors":{"address":{"_errors":[{'
        '"property":"postal_code","name":"ValidationError","message":"is not a valid postal '
        'code"}]}}}]',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "node: number as cuid",
        '{"cuid":4711,"errors":["city is required"]}',
        "4711",
        ("address.city.missing",),
    ),
    Written(
        "node: upper case key",
        '{"CUID":"B-000123","Errors":["city is required"]}',
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "node: timeout",
        '{"cuid":"B-000123","errors":[{"name":"TimeoutError","message":"upstream timed out"}]}',
        "B-000123",
        ("partner.error.unavailable",),
    ),
    Written(
        "node: non-ASCII",
        '{"cuid":"B-000123","errors":[{"property":"first_name","message":"« Zoë » n’est pas '
        'valide: invalid"}]}',
        "B-000123",
        ("address.first_name.format",),
    ),
    Written(
        "python: json.dumps",
        '{"cuid": "B-000123", "errors": {"address": {"_errors": [{"property": "postal_code", '
        '"name": "ValidationError", "message": "is not a valid postal code"}]}}}',
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "python: json.dumps ascii",
        '{"cuid": "B-000123", "errors": [{"property": "city", "message": '
        '"\\u201cMontr\\u00e9al\\u201d is invalid"}]}',
        "B-000123",
        ("address.city.format",),
    ),
    Written(
        "python: repr",
        "{'cuid': 'B-000123', 'errors': [{'name': 'RequiredError', 'message': "
        "\"can't be blank\", 'property': 'address1', 'id': None}, {'name': "
        "'ValidationError', 'message': 'is invalid', 'property': 'pan', 'final': True}]}",
        "B-000123",
        ("address.address1.missing", "card.pan.format"),
    ),
    Written(
        "python: repr of tuple",
        "('B-000123', {'cuid': 'B-000123', 'errors': {'address': {'_errors': [{'property': "
        "'postal_code', 'name': 'ValidationError', 'message': 'is not a valid postal code'}]}}})",
        "B-000123",
        ("address.postal_code.format",),
    ),
    Written(
        "python: repr of repr",
        "'{\\'cuid\\': \\'B-000123\\', \\'errors\\': [{\\'name\\': \\'RequiredError\\', "
        "\\'message\\': \"can\\'t be blank\", \\'property\\': \\'address1\\', \\'id\\': "
        "None}, {\\'name\\': \\'ValidationError\\', \\'message\\': \\'is invalid\\', "
        "\\'property\\': \\'pan\\', \\'final\\': True}]}'",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: pprint",
        "{'cuid': 'B-000123',\n 'errors': [{'id': None,\n             'message': "
        "\"can't be \"\n                        'blank',\n             'name': "
        "'RequiredError',\n             'property': 'address1'},\n            {'final': True,\n  "
        "           'message': 'is invalid',\n             'name': 'ValidationError',\n          "
        "   'property': 'pan'}]}",
        "B-000123",
        ("address.address1.missing", "card.pan.format"),
    ),
    Written(
        "python: repr of OrderedDict",
        "OrderedDict([('cuid', 'B-000123'), ('errors', [{'name': 'RequiredError', 'message': "
        "\"can't be blank\", 'property': 'address1', 'id': None}, {'name': "
        "'ValidationError', 'message': 'is invalid', 'property': 'pan', 'final': True}])])",
        "B-000123",
        (),
    ),
    Written(
        "python: str of exception with dict",
        "{'cuid': 'B-000123', 'errors': [{'name': 'RequiredError', 'message': "
        "\"can't be blank\", 'property': 'address1', 'id': None}, {'name': "
        "'ValidationError', 'message': 'is invalid', 'property': 'pan', 'final': True}]}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: repr of exception",
        "E('city is required', {'cuid': 'B-000123'})",
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "python: repr of bytes",
        'b\'{"cuid": "B-000123", "errors": [{"name": "RequiredError", "message": "can\\\'t be '
        'blank", "property": "address1", "id": null}, {"name": "ValidationError", "message": "is '
        'invalid", "property": "pan", "final": true}]}\'',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: json of repr",
        "{\"error\": \"{'cuid': 'B-000123', 'errors': [{'name': 'RequiredError', "
        "'message': \\\"can't be blank\\\", 'property': 'address1', 'id': None}, {"
        "'name': 'ValidationError', 'message': 'is invalid', 'property': 'pan', 'final': "
        'True}]}"}',
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: html.escape of repr",
        "{&#x27;cuid&#x27;: &#x27;B-000123&#x27;, &#x27;errors&#x27;: [{&#x27;name&#x27;: "
        "&#x27;RequiredError&#x27;, &#x27;message&#x27;: &quot;can&#x27;t be blank&quot;, "
        "&#x27;property&#x27;: &#x27;address1&#x27;, &#x27;id&#x27;: None}, {&#x27;name&#x27;: "
        "&#x27;ValidationError&#x27;, &#x27;message&#x27;: &#x27;is invalid&#x27;, "
        "&#x27;property&#x27;: &#x27;pan&#x27;, &#x27;final&#x27;: True}]}",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: url quoted",
        "%7B%22cuid%22%3A%20%22B-000123%22%2C%20%22errors%22%3A%20%5B%7B%22name%22%3A%2"
        "0%22RequiredError%22%2C%20%22message%22%3A%20%22can%27t%20be%20blank%22%2C%20%"
        "22property%22%3A%20%22address1%22%2C%20%22id%22%3A%20null%7D%2C%20%7B%22name%2"
        "2%3A%20%22ValidationError%22%2C%20%22message%22%3A%20%22is%20invalid%22%2C%20%"
        "22property%22%3A%20%22pan%22%2C%20%22final%22%3A%20true%7D%5D%7D",
        "B-000123",
        ("card.pan.format",),
    ),
    Written(
        "python: pydantic",
        '{"cuid": "B-000123", "detail": [{"loc": ["body", "card", "pan"], "msg": "field '
        'required", "type": "value_error.missing"}]}',
        "B-000123",
        ("card.pan.missing",),
    ),
    Written(
        "python: shortened",
        '{"cuid": "B-000123", "errors": [{"name": "RequiredError",...',
        "B-000123",
        ("partner.error.missing",),
    ),
    Written(
        "python: logfmt",
        'level=error cuid=B-000123 property=city message="is required"',
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "python: yaml-like",
        "cuid: B-000123\nerrors:\n  - property: city\n    message: is required\n",
        "B-000123",
        ("address.city.missing",),
    ),
    Written(
        "python: XML",
        "<error><cuid>B-000123</cuid><property>city</property><message>is "
        "required</message></error>",
        "B-000123",
        (),
    ),
    Written(
        "python: words",
        "The cardholder could not be created because the postal code is missing (cuid B-000123)",
        "B-000123",
        ("address.postal_code.missing",),
    ),
    Written(
        "python: words without a cuid",
        "Internal server error",
        None,
        ("partner.error.unavailable",),
    ),
    Written("python: blank", "   ", None, ("partner.error.unreadable",)),
)
