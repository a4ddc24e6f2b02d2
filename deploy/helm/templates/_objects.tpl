{{- /* The chart has no manifests of its own: it reads those of `kubectl apply -k deploy` (plain/), and changes what values ask for. */ -}}

{{- /* The objects of a plain manifest, in the release's namespace: {items: [...]} */ -}}
{{- define "tenure.objects" -}}
{{- $items := list -}}
{{- $text := .root.Files.Get (printf "plain/%s" .file) -}}
{{- if not $text -}}
{{- fail (printf "the chart is not complete: plain/%s is missing" .file) -}}
{{- end -}}
{{- $text = replace "namespace: kube-system" (printf "namespace: %s" .root.Release.Namespace) $text -}}
{{- range regexSplit "(?m)^---$" $text -1 -}}
{{- $items = append $items (fromYaml .) -}}
{{- end -}}
{{- toYaml (dict "items" $items) -}}
{{- end -}}

{{- /* They as they are. */ -}}
{{- define "tenure.unchanged" -}}
{{- range (include "tenure.objects" . | fromYaml).items }}
---
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tenure.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- /* The rights of a program. Those on Whereabouts' objects are a Role in the namespace of these; all else stays in the release's. */ -}}
{{- define "tenure.rights" -}}
{{- $here := .root.Release.Namespace -}}
{{- $there := .root.Values.whereabouts.namespace -}}
{{- $rules := dict -}}
{{- range $object := (include "tenure.objects" . | fromYaml).items }}
{{- range $object.rules }}
{{- $place := and (eq $object.kind "Role") (has "whereabouts.cni.cncf.io" .apiGroups) | ternary $there $here }}
{{- $_ := set $rules $place (append (get $rules $place | default list) .) }}
{{- end }}
{{- if not (has .kind (list "Role" "RoleBinding")) }}
{{- $rules = dict }}
---
{{ toYaml $object }}
{{- else }}
{{- range $place, $ofPlace := $rules }}
{{- $_ := set $object.metadata "namespace" $place }}
{{- if $object.rules }}{{ $_ := set $object "rules" $ofPlace }}{{ end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* What values say of each program's pods: .template is changed, .values are those of the program. */ -}}
{{- define "tenure.pod" -}}
{{- $root := .root -}}
{{- $spec := .template.spec -}}
{{- range $container := concat ($spec.initContainers | default list) $spec.containers -}}
{{- $_ := set $container "image" (include "tenure.image" $root) -}}
{{- with $root.Values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- with $root.Values.logLevel -}}
{{- $_ := set $container "env" (append ($container.env | default list) (dict "name" "RUST_LOG" "value" .)) -}}
{{- end -}}
{{- end -}}
{{- with $root.Values.image.pullSecrets }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end -}}
{{- with .values.nodeSelector }}{{ $_ := set $spec "nodeSelector" (merge (deepCopy .) ($spec.nodeSelector | default dict)) }}{{ end -}}
{{- with .values.tolerations }}{{ $_ := set $spec "tolerations" . }}{{ end -}}
{{- with .values.podAnnotations -}}
{{- $_ := set $.template.metadata "annotations" (merge (deepCopy .) ($.template.metadata.annotations | default dict)) -}}
{{- end -}}
{{- $main := index $spec.containers 0 -}}
{{- with .values.resources }}{{ $_ := set $main "resources" . }}{{ end -}}
{{- $args := list -}}
{{- range $main.args -}}
{{- if not (has . $.without) -}}
{{- $args = append $args (regexReplaceAll "^--log-format=.*$" . (printf "--log-format=%s" $root.Values.logFormat)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $main "args" (concat $args .more .values.extraArgs) -}}
{{- end -}}

{{- /* Flags that both programs have. */ -}}
{{- define "tenure.flags" -}}
{{- $flags := list -}}
{{- with .Values.cooling }}{{ $flags = append $flags (printf "--cooling=%s" .) }}{{ end -}}
{{- with .Values.rest }}{{ $flags = append $flags (printf "--rest=%s" .) }}{{ end -}}
{{- if ne .Values.whereabouts.namespace "kube-system" -}}
{{- $flags = append $flags (printf "--whereabouts-namespace=%s" .Values.whereabouts.namespace) -}}
{{- end -}}
{{- if not .Values.egress.enabled }}{{ $flags = append $flags "--enable-egress=false" }}{{ end -}}
{{- toYaml (dict "flags" $flags) -}}
{{- end -}}

{{- /* The name of the cluster's own network. */ -}}
{{- define "tenure.network" -}}
{{- eq .Values.cloud.provider "gcp" | ternary "gke-pod-network" "tenure" -}}
{{- end -}}

{{- /* Definitions of kinds, which stay when the chart is uninstalled. */ -}}
{{- define "tenure.kept" -}}
{{- range $object := (include "tenure.objects" . | fromYaml).items }}
{{- $_ := set $object.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($object.metadata.annotations | default dict)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end -}}
