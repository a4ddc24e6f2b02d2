//! The kinds of kubernetes-nmstate as it publishes them, and what its admission refuses, in our own words.

/// Enactments are served as v1beta1 alone, and their status has no room for a record of addresses.
pub const DEFINITIONS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodenetworkconfigurationpolicies.nmstate.io}
spec:
  group: nmstate.io
  scope: Cluster
  names: {kind: NodeNetworkConfigurationPolicy, plural: nodenetworkconfigurationpolicies, singular: nodenetworkconfigurationpolicy, shortNames: [nncp]}
  versions:
    - &policy
      name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              properties:
                nodeSelector: {type: object, additionalProperties: {type: string}}
                capture: {type: object, additionalProperties: {type: string}}
                desiredState: {x-kubernetes-preserve-unknown-fields: true}
                maxUnavailable: {anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true}
            status:
              type: object
              properties:
                conditions: &conditions
                  type: array
                  items:
                    type: object
                    required: [type, status]
                    properties:
                      type: {type: string}
                      status: {type: string}
                      reason: {type: string}
                      message: {type: string}
                      lastHeartbeatTime: {type: string, format: date-time}
                      lastTransitionTime: {type: string, format: date-time}
                unavailableNodeCount: {type: integer}
                unavailableNodeCountMap: {type: object, additionalProperties: {type: integer}}
                lastUnavailableNodeCountUpdate: {type: string, format: date-time}
    - <<: *policy
      name: v1beta1
      deprecated: true
      storage: false
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodenetworkconfigurationenactments.nmstate.io}
spec:
  group: nmstate.io
  scope: Cluster
  names: {kind: NodeNetworkConfigurationEnactment, plural: nodenetworkconfigurationenactments, singular: nodenetworkconfigurationenactment, shortNames: [nnce]}
  versions:
    - name: v1beta1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            status:
              type: object
              properties:
                conditions:
                  type: array
                  items:
                    type: object
                    required: [type, status]
                    properties:
                      type: {type: string}
                      status: {type: string}
                      reason: {type: string}
                      message: {type: string}
                      lastHeartbeatTime: {type: string, format: date-time}
                      lastTransitionTime: {type: string, format: date-time}
                desiredState: {x-kubernetes-preserve-unknown-fields: true}
                desiredStateMetaInfo:
                  type: object
                  properties: {version: {type: string}, time: {type: string, format: date-time}}
                capturedStates:
                  type: object
                  additionalProperties:
                    type: object
                    properties:
                      state: {x-kubernetes-preserve-unknown-fields: true}
                      metaInfo: {type: object, properties: {version: {type: string}, time: {type: string, format: date-time}}}
                policyGeneration: {type: integer, format: int64}
                features: {type: array, items: {type: string}}
                retryCount: {type: object, additionalProperties: {type: integer}}
";

/// A policy's name fits into a label; its captures never change; nobody changes it while it progresses.
pub const ADMISSION: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: played-nmstate}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [nmstate.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [nodenetworkconfigurationpolicies]}
  validations:
    - expression: "object.metadata.name.size() <= 63"
      message: the name of a policy has at most 63 characters
    - expression: >-
        oldObject == null
        || (has(object.spec.capture) ? object.spec.capture : {}) == (has(oldObject.spec.capture) ? oldObject.spec.capture : {})
      message: captures cannot be changed
    - expression: >-
        oldObject == null || object.spec == oldObject.spec || !has(oldObject.status) || !has(oldObject.status.conditions)
        || !oldObject.status.conditions.exists(it, it.type == "Progressing" && it.status == "True")
      message: the policy is in progress
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: played-nmstate}
spec: {policyName: played-nmstate, validationActions: [Deny]}
"#;
