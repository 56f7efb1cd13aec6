//! Knowing an id is not enough (C55): whoever may not see a thing gets, from every route that takes an id, the very
//! answer that an unknown id gets. The routes are taken from the document, which is made from the router, so a new
//! one can't be forgotten.

use domain::{AssetId, KeyId, ProjectId, TaskId, UserId};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Someone, request};

/// A route that takes an id.
struct Route {
    method: Method,
    path: String,
}

fn routes_with_ids() -> Vec<Route> {
    let document: Value = serde_json::from_str(&api::document_text()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        // Pages about codes belong to nobody, and a provider's call names no caller: its address is its credential.
        let of_nobody = ["/problems/", "/callbacks/"].iter().any(|start| path.starts_with(start));
        if !path.contains('{') || of_nobody {
            continue;
        }
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let method = method.to_uppercase().parse().unwrap();
            routes.push(Route { method, path: path.clone() });
        }
    }
    routes
}

/// What one caller owns, or what nobody does.
struct Ids {
    task: TaskId,
    asset: AssetId,
    project: ProjectId,
    member: UserId,
    key: KeyId,
}

impl Ids {
    fn unknown() -> Self {
        Self {
            task: TaskId::generate(),
            asset: AssetId::generate(),
            project: ProjectId::generate(),
            member: UserId::generate(),
            key: "abcdefghijkl".parse().unwrap(),
        }
    }

    fn fill(&self, path: &str) -> String {
        let id = match path.split('/').nth(1).unwrap() {
            "tasks" => self.task.to_string(),
            "assets" => self.asset.to_string(),
            "projects" => self.project.to_string(),
            "admin" if path.starts_with("/admin/keys/") => self.key.to_string(),
            "admin" if path.starts_with("/admin/limits/") => String::new(),
            "admin" if path.starts_with("/admin/pauses/") => String::new(),
            other => panic!("teach this test what an id below /{other} is"),
        };
        let filled = path
            .replace("{id}", &id)
            .replace("{user_id}", &self.member.to_string())
            .replace("{subject}/{limit}", &format!("key:{}/reads", self.key))
            .replace("/pauses/{subject}", "/pauses/account:elsewhere");
        assert!(!filled.contains('{'), "teach this test what stands in {filled}");
        filled
    }
}

fn body_for(method: &Method, path: &str) -> Option<Value> {
    match (method, path) {
        (&Method::PATCH, "/projects/{id}") => Some(json!({ "name": "Mine now" })),
        (&Method::PUT, "/projects/{id}/members/{user_id}") => Some(json!({ "role": "viewer" })),
        (&Method::PUT, "/admin/limits/{subject}/{limit}") => Some(json!({ "unlimited": true })),
        (&Method::PUT, "/admin/pauses/{subject}") => Some(json!({ "reason": "mine now" })),
        (&Method::PATCH | &Method::PUT, other) => panic!("teach this test a body for {other}"),
        _ => None,
    }
}

async fn ask(api: &Api, route: &Route, ids: &Ids, key: &str) -> Answer {
    let path = ids.fill(&route.path);
    let body = body_for(&route.method, &route.path);
    api.send(request(route.method.clone(), &path, Some(key), body.as_ref())).await
}

/// A caller with one of everything that has an id.
async fn owner_of_everything(api: &Api) -> (Someone, Ids) {
    let owner = api.someone("pro").await;
    let project = api.post("/projects", &owner.key, &json!({ "name": "Secret" })).await.json();
    let task = api.task(&owner).await;
    api.succeed(task).await;
    let read = api.get(&format!("/tasks/{task}"), &owner.key).await.json();
    let ids = Ids {
        task,
        asset: read["output_asset_id"].as_str().unwrap().parse().unwrap(),
        project: project["id"].as_str().unwrap().parse().unwrap(),
        member: owner.user,
        key: owner.key.split('_').nth(1).unwrap().parse().unwrap(),
    };
    (owner, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_others_answers_like_what_does_not_exist() {
    let api = Api::new().await;
    let (owner, theirs) = owner_of_everything(&api).await;
    let colleague = api.colleague(&owner).await;
    let stranger = api.someone("pro").await;
    let routes = routes_with_ids();
    assert!(routes.len() >= 10, "the document lists the routes");
    for round in ["cold caches", "right after the owner's read"] {
        for route in &routes {
            for (who, key) in [("colleague", &colleague.key), ("stranger", &stranger.key)] {
                if round != "cold caches" && route.method == Method::GET {
                    let warmed = ask(&api, route, &theirs, &owner.key).await;
                    assert_eq!(warmed.status, StatusCode::OK, "{} {}", route.method, route.path);
                }
                let foreign = ask(&api, route, &theirs, key).await;
                let unknown = ask(&api, route, &Ids::unknown(), key).await;
                let what = format!("{} {} for a {who}, {round}", route.method, route.path);
                assert_eq!(foreign.status, unknown.status, "{what}");
                assert_eq!(foreign.without_request_id(), unknown.without_request_id(), "{what}");
                let expected = if route.path.starts_with("/admin/") {
                    StatusCode::FORBIDDEN
                } else {
                    StatusCode::NOT_FOUND
                };
                assert_eq!(foreign.status, expected, "{what}");
            }
        }
    }
    // Nothing was written either.
    let project = api.get(&format!("/projects/{}", theirs.project), &owner.key).await.json();
    assert_eq!(project["name"], "Secret");
    let members = api.get(&format!("/projects/{}/members", theirs.project), &owner.key).await.json();
    assert_eq!(members["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.get("/me", &owner.key).await.status, StatusCode::OK, "the key was not revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_no_id_answers_like_an_unknown_one() {
    let api = Api::new().await;
    let someone = api.someone("pro").await;
    let unknown = api.get(&format!("/tasks/{}", TaskId::generate()), &someone.key).await;
    let id = TaskId::generate().to_string();
    for text in ["x", &id.to_uppercase(), &id[..id.len() - 1], "task_%00", "%ff", "..%2f..%2fetc"] {
        let answer = api.get(&format!("/tasks/{text}"), &someone.key).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{text}");
        assert_eq!(answer.without_request_id(), unknown.without_request_id(), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_never_contain_what_belongs_to_others() {
    let api = Api::new().await;
    let (owner, theirs) = owner_of_everything(&api).await;
    let stranger = api.someone("pro").await;
    let colleague = api.colleague(&owner).await;
    for other in [&stranger, &colleague] {
        for path in ["/tasks".to_owned(), format!("/tasks?ids={}", theirs.task), "/projects".to_owned()] {
            let list = api.get(&path, &other.key).await;
            assert_eq!(list.json()["items"], json!([]), "{path}");
        }
        let foreign = format!("/tasks?project_id={}", theirs.project);
        assert_eq!(api.get(&foreign, &other.key).await.json()["items"], json!([]));
    }
    let own = api.get(&format!("/tasks?ids={},{}", theirs.task, TaskId::generate()), &owner.key).await.json();
    assert_eq!(own["items"][0]["task_id"], theirs.task.to_string());
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenants_idempotency_key_is_another_key() {
    let api = Api::new().await;
    let (one, other) = (api.someone("pro").await, api.someone("pro").await);
    let mut ids = Vec::new();
    for who in [&one, &other] {
        let mut ask = request(Method::POST, "/generations", Some(&who.key), Some(&crate::harness::video()));
        ask.headers_mut().insert("idempotency-key", "same".parse().unwrap());
        let answer = api.send(ask).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        assert_eq!(answer.header("idempotent-replayed"), None);
        ids.push(answer.json()["task_id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
}
