//! Requests as Python describes them: attributes in a dict, an ASGI scope, a WSGI environment.

use std::net::IpAddr;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyMapping, PyString, PyTuple};
use tollkeeper::Descriptor;
use tollkeeper_engine::{Ask, Engine, Error, Head, Subject};

use crate::cost::Cost;
use crate::text::utf8;

/// Attributes by name. Values are strings; numbers and booleans are converted.
pub(crate) fn pairs(attributes: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let attributes = match attributes.cast::<PyDict>() {
        Ok(dict) => dict.clone(),
        Err(_) => dict_of(attributes)?,
    };
    let mut pairs = Vec::with_capacity(attributes.len());
    for (name, value) in attributes {
        // None means absent.
        if value.is_none() {
            continue;
        }
        let Ok(name) = name.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!("attributes: a name must be a str, not {}", name.repr()?)));
        };
        let name = utf8(name)?.into_owned();
        let value = match value.cast::<PyString>() {
            Ok(text) => utf8(text)?.into_owned(),
            Err(_) => text_of(&name, &value)?,
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// A value that is not a string. Objects without a text of their own are refused: the one that Python makes up for them has their
/// address, which is another key each time.
fn text_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>() {
        return Ok(value.is_truthy()?.to_string());
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned());
    }
    let py = value.py();
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if !is_number {
        let method = intern!(py, "__str__");
        if value.get_type().getattr(method)?.is(&py.get_type::<PyAny>().getattr(method)?) {
            let kind = value.get_type().name()?;
            let problem = format!("{name}: an attribute must be a str, a number or a bool, not {kind}");
            return Err(PyTypeError::new_err(problem));
        }
    }
    Ok(value.str()?.to_string())
}

/// Any other mapping as a dict.
fn dict_of<'py>(mapping: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let Ok(mapping) = mapping.cast::<PyMapping>() else {
        let kind = mapping.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "attributes must be a mapping such as {{\"user_id\": \"42\"}}, not {kind}"
        )));
    };
    let dict = PyDict::new(mapping.py());
    dict.update(mapping)?;
    Ok(dict)
}

fn descriptor(attributes: &Bound<'_, PyAny>, cost: u32, rules: Option<Vec<String>>) -> PyResult<Descriptor> {
    let request = Descriptor::new(pairs(attributes)?).with_cost(cost);
    Ok(match rules {
        Some(names) => request.with_rules(names),
        None => request,
    })
}

/// A request by its attributes.
pub(crate) fn subject(attributes: &Bound<'_, PyAny>, cost: u32, rules: Option<Vec<String>>) -> PyResult<Subject> {
    Ok(Subject::Attributes(descriptor(attributes, cost, rules)?))
}

/// A request whose cost is an estimate.
pub(crate) fn estimate(
    attributes: &Bound<'_, PyAny>,
    cost: u32,
    hold: Option<f64>,
    rules: Option<Vec<String>>,
) -> PyResult<Ask> {
    Ok(Ask::Reserve(subject(attributes, cost, rules)?, hold.map(duration).transpose()?))
}

/// Several requests, each a mapping or a pair of a mapping and its cost.
pub(crate) fn many(requests: &Bound<'_, PyAny>, rules: Option<Vec<String>>) -> PyResult<Ask> {
    if requests.is_instance_of::<PyDict>() || requests.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("requests must be a list of attributes or of (attributes, cost)"));
    }
    let each = requests.try_iter()?.enumerate().map(|(index, request)| {
        let request = request?;
        match request.cast::<PyTuple>() {
            Ok(pair) => {
                let Ok((attributes, Cost(cost))) = pair.extract::<(Bound<'_, PyAny>, Cost)>() else {
                    let shown = pair.repr()?;
                    let problem =
                        format!("requests[{index}]: {shown} is not (attributes, cost) with a whole number as cost");
                    return Err(PyTypeError::new_err(problem));
                };
                descriptor(&attributes, cost, rules.clone())
            }
            Err(_) => descriptor(&request, 1, rules.clone()),
        }
    });
    Ok(Ask::CheckMany(each.collect::<PyResult<_>>()?))
}

/// Adds what the framework knows of an HTTP request.
pub(crate) fn know(head: &mut Head, known: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    if let Some(known) = known {
        for (name, value) in pairs(known.as_any())? {
            head.know(name, value);
        }
    }
    Ok(())
}

/// Why there is no head.
pub(crate) enum Trouble {
    Python(PyErr),
    Request(Box<Error>),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Python(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Request(Box::new(error))
    }
}

/// A head with the client's address from the server.
fn of_client(host: Option<&str>) -> Head {
    let Some(host) = host.filter(|host| !host.is_empty()) else { return Head::new(None) };
    // A zone, as in `fe80::1%eth0`, only matters on this machine.
    match host.split('%').next().unwrap_or(host).parse::<IpAddr>() {
        Ok(address) => Head::new(Some(address)),
        Err(_) => {
            // Test clients have a name instead. Clients cannot choose it: it comes from the server.
            let mut head = Head::new(None);
            head.know("ip", host);
            head
        }
    }
}

/// The head of an ASGI request, as far as the rules in force need it.
pub(crate) fn asgi_head(scope: &Bound<'_, PyDict>, engine: &Engine) -> Result<Head, Trouble> {
    let (py, needs, forwarding) = (scope.py(), engine.needs(), engine.watched_headers());
    let client = if needs.address { scope.get_item(intern!(py, "client"))? } else { None };
    let host = match client {
        Some(client) if !client.is_none() => client.get_item(0)?.cast_into::<PyString>().ok(),
        _ => None,
    };
    let mut head = match &host {
        Some(host) => of_client(Some(&utf8(host)?)),
        None => of_client(None),
    };
    if needs.method {
        // A WebSocket handshake is a GET.
        match scope.get_item(intern!(py, "method"))? {
            Some(method) => head.set_method(utf8(method.cast::<PyString>().map_err(PyErr::from)?)?.as_bytes()),
            None => head.set_method(b"GET"),
        }
    }
    if needs.target {
        let query = scope.get_item(intern!(py, "query_string"))?;
        let query = query.as_ref().and_then(|query| query.cast::<PyBytes>().ok());
        let query = query.map_or(&b""[..], |query| query.as_bytes());
        let raw = scope.get_item(intern!(py, "raw_path"))?.filter(|raw| !raw.is_none());
        match raw.as_ref().and_then(|raw| raw.cast::<PyBytes>().ok()) {
            // Some servers leave the query in it.
            Some(raw) => {
                head.set_target(raw.as_bytes().split(|byte| *byte == b'?').next().unwrap_or_default(), query)?
            }
            None => {
                let path = scope.get_item(intern!(py, "path"))?.map(|path| path.extract::<String>()).transpose()?;
                head.set_target(path.unwrap_or_default().replace('%', "%25").as_bytes(), query)?;
            }
        }
    }
    let names = || needs.headers.iter().chain(forwarding);
    if names().next().is_some()
        && let Some(headers) = scope.get_item(intern!(py, "headers"))?
    {
        for field in headers.try_iter()? {
            let field = field?;
            let (name, value) = match field.cast::<PyTuple>() {
                Ok(pair) => (pair.get_item(0)?, pair.get_item(1)?),
                Err(_) => (field.get_item(0)?, field.get_item(1)?),
            };
            let name = name.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
            if let Some(name) = names().find(|wanted| wanted.as_str().as_bytes().eq_ignore_ascii_case(name)) {
                head.add_header(name.clone(), value.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes());
            }
        }
    }
    Ok(head)
}

/// The head of a WSGI request, as far as the rules in force need it.
pub(crate) fn wsgi_head(environ: &Bound<'_, PyDict>, engine: &Engine) -> Result<Head, Trouble> {
    let (needs, forwarding) = (engine.needs(), engine.watched_headers());
    // WSGI passes bytes as Latin-1 strings.
    let bytes = |name: &str| -> PyResult<Option<Vec<u8>>> {
        let Some(value) = environ.get_item(name)? else { return Ok(None) };
        let text: String = value.extract()?;
        Ok(Some(text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()))
    };
    let host = if needs.address { bytes("REMOTE_ADDR")? } else { None };
    let mut head = of_client(host.as_deref().and_then(|host| std::str::from_utf8(host).ok()));
    if needs.method {
        head.set_method(&bytes("REQUEST_METHOD")?.unwrap_or_default());
    }
    if needs.target {
        let query = bytes("QUERY_STRING")?.unwrap_or_default();
        let path = match bytes("RAW_URI")?.or(bytes("REQUEST_URI")?).filter(|target| target.starts_with(b"/")) {
            Some(target) => target.split(|byte| *byte == b'?').next().unwrap_or_default().to_vec(),
            None => {
                let path = [bytes("SCRIPT_NAME")?, bytes("PATH_INFO")?].into_iter().flatten().flatten();
                path.flat_map(|byte| if byte == b'%' { b"%25".to_vec() } else { vec![byte] }).collect()
            }
        };
        head.set_target(&path, &query)?;
    }
    let more = forwarding.iter().filter(|name| !needs.headers.contains(name));
    for name in needs.headers.iter().chain(more) {
        let upper = name.as_str().to_ascii_uppercase().replace('-', "_");
        let key =
            if matches!(name.as_str(), "content-type" | "content-length") { upper } else { format!("HTTP_{upper}") };
        if let Some(value) = bytes(&key)? {
            head.add_header(name.clone(), &value);
        }
    }
    Ok(head)
}

fn duration(seconds: f64) -> PyResult<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("hold: {seconds} is not a duration in seconds")))
}
